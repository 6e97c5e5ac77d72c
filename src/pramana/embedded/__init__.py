"""The engines that run in this process, and where their weights lie: no key, no account, no server, no network.

`weights` finds or pulls the files (`npm` those that pip does not have), `language` answers, `minilm` embeds. `voice`
and `piper` speak, `scripts` knows what a voice can read; `ears` hear, `activity` finds speech, `quality` guesses how
it sounds. Each loads on first use and once a process.
"""
