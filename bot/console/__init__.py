"""The web console: server-rendered pages that show what the record says and post what a person decides.

Every page is a projection read at that moment. A click is a form post that runs the same typed command as chat and terminal; its
answer is shown once on the page that follows. Nothing is decided here.
"""
