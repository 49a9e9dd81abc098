"""Screens of the console, a module each; `all_screens.py` lists them."""
