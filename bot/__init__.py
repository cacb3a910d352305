"""What people and machines touch: REST, the console and the terminal. Translates and renders, and decides nothing.

May import `catalog` and `incidents`, never `incidents.mint`. `doors` is what every request passes, `rest` the HTTP interface,
`console` the web pages, `terminal` the operator's client, `rendering` one pure function per surface that turns the neutral card
into what it shows. `serving` is the process: one event loop for webhooks, clicks and claims; `entry` its command line.
"""
