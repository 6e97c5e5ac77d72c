"""The engines that run in this process, and where their weights lie: no key, no account, no server, no network.

`weights` finds or pulls the files, `language` answers, `minilm` embeds. Each loads on first use and once a process.
"""
