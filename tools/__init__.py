"""Set-up of the environments in which this project is tried: Python environments, jars, source packages."""
