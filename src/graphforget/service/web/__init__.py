"""The web page: plain HTML from the server, without scripts."""
