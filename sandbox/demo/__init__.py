"""The demo: the shipped bot and executor, as on anybody's cluster, against an emulated one.

Nothing in the product knows of this. What is set up here is what an operator sets up: an autonomy.yaml, a limits file, alerting
rules (`published/`), accounts, tokens and keys made with the shipped commands. The processes run under two Kubernetes accounts;
the bot's may only read. People are tokens that speak through the API.

`sandbox.demo.history` lives through the incidents whose labels open the calibration gate and keeps the bot's database as a
backup; `sandbox.demo.show` starts from that backup and plays the story.
"""
