"""The web console: pages about any Kafka cluster, for a browser; `odradek console` starts it.

It is a Kafka client with the credentials of the person who looks: it shows and does what that person could
see and do with a client, and no more. Pages are HTML that is made here; scripts are needed for the tail
alone.

In reading order, each with one story:

- `settings.py`: what a console is started with. `make_app(settings)` of `app.py` makes the ASGI application,
  and `running.py` serves it at a socket that is bound already, by this process or by one that handed it over.
- `access.py`: `Access` is the one way to the brokers. It lends a `Cluster` (`odradek.client`) with the
  person's credentials for a while. Every request passes its check before it is sent, where `read_only` and
  `hides_messages` hold: pages only leave out what would be refused there.
- `sessions.py`: a session has an `Access`, a secret in a cookie, and a token for forms. Failed logins are
  slowed.
- `workers.py`: the client blocks, so all of its calls run in a bounded number of threads.
- `gate.py`: what is asked of a request before a screen sees it: its Host, Origin, size, and the headers of
  every response.
- `visit.py`: `Visit` is one request as a screen sees it. `ask` runs a call with a cluster and raises its
  ClientError; `part` gives a `Part`, whose failure is a sentence in its place on the page, so that the rest
  of the page works.
- `listing.py`: rows sorted, cut into pages and found again by their URL.
- `rendering.py`: templates and their filters: times with their zone, sizes, links, sparklines as SVG.
- `contents.py`: keys and values of records as text, bounded in size, depth and time. `filters.py` chooses
  records, `search.py` reads them in steps that end in time and say where the next one goes on.
- `screens/`: a module a screen, with its template. It has `SCREENS`, a list of `Screen` (path, methods,
  function of a `Visit`); `screens/all_screens.py` lists the modules. A new screen is a module, a template,
  and a row there.

Texts from brokers (names, keys, values, errors) reach a page only through the templates, which escape all.
"""
