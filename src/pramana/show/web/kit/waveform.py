"""The waveform of a call: takes the peaks and turns of both sides, draws the caller above and the agent below.

Both sides share one time axis and one scale of loudness, so a side that is drawn low was quiet. The picture is a
slider: clicking it moves the player there.
"""

import json
from collections.abc import Sequence

from nicegui import ui

from pramana.app.calls import CallView, TranscriptEntryView
from pramana.report.figures import format_duration
from pramana.report.markup import SafeHtml, join_html, render_untrusted_text, tag
from pramana.report.pictures import draw_time_axis
from pramana.show.web.kit import parts

PLAYER_ID, PICTURE_ID, TRANSCRIPT_ID = "call-sound", "call-place", "call-told"
"""Element ids: the player, the waveform and the transcript."""
_CHANNEL_HEIGHT = 50
_MIN_SCALED_PEAK = 0.02
"""Calls quieter than this are not scaled up to full height."""
_STEP_S, _LEAP_S = 1.0, 5.0
_SPEAKERS = ("caller", "agent")


def draw_waveform(call: CallView) -> SafeHtml:
    """Return the waveform of a call as SVG."""
    seconds, peaks = call.duration_seconds, {"caller": call.peaks.caller, "agent": call.peaks.agent}
    columns = len(call.peaks.caller)
    loudest = max(_MIN_SCALED_PEAK, *call.peaks.caller, *call.peaks.agent)
    shades = [
        tag(
            "rect",
            class_="turn",
            x=f"{columns * each.start_seconds / seconds:.2f}",
            width=f"{columns * ((each.end_seconds or each.start_seconds) - each.start_seconds) / seconds:.2f}",
            y=_CHANNEL_HEIGHT * _SPEAKERS.index(each.who),
            height=_CHANNEL_HEIGHT,
        )
        for each in call.turns
        if seconds
    ]
    sides = [
        tag(
            "path",
            class_=f"side {who}",
            d=_draw_waveform_path(peaks[who], _CHANNEL_HEIGHT * place + _CHANNEL_HEIGHT / 2, loudest),
        )
        for place, who in enumerate(_SPEAKERS)
    ]
    return join_html(
        [
            tag(
                "svg",
                shades,
                tag("path", class_="axis", d=f"M0 {_CHANNEL_HEIGHT}H{columns}"),
                sides,
                viewBox=f"0 0 {columns} {2 * _CHANNEL_HEIGHT}",
                preserveAspectRatio="none",
                aria_hidden="true",
            ),
            (tag("span", who, class_=f"lane {who}", aria_hidden="true") for who in _SPEAKERS),
            tag("div", class_="playhead"),
        ]
    )


def _draw_waveform_path(peaks: Sequence[float], middle_y: float, max_peak: float) -> str:
    """Return the outline of one side as a path: the peaks above its middle line, then back below it."""
    heights = [max(0.3, 0.9 * _CHANNEL_HEIGHT / 2 * each / max_peak) for each in peaks]
    there = "L".join(f"{x} {middle_y - height:.1f}" for x, height in enumerate(heights))
    back = "L".join(f"{x} {middle_y + heights[x]:.1f}" for x in reversed(range(len(heights))))
    return f"M{there}L{back}Z"


def render_conversation(conversation: Sequence[TranscriptEntryView]) -> SafeHtml:
    """Return the transcript as a list; each spoken line has a button that plays from there."""
    return tag("ol", (_render_transcript_entry(each) for each in conversation), class_="talk", id=TRANSCRIPT_ID)


def _render_transcript_entry(entry: TranscriptEntryView) -> SafeHtml:
    who, at = entry.who, entry.at_s or 0.0
    spoken = who in _SPEAKERS and entry.at_s is not None
    button = tag(
        "button",
        tag("span", "▶", aria_hidden="true"),
        f" {at:.2f} s" if spoken else "",
        type="button",
        class_="native small",
        data_seek=f"{at:.3f}" if spoken else None,
        aria_label=f"Play the {who} from {at:.2f} s" if spoken else None,
    )
    return tag(
        "li",
        tag("div", tag("b", who, class_=f"who {who.replace(' ', '-')}"), " ", button if spoken else None),
        tag("p", render_untrusted_text(entry.text or "(nothing)"), dir="auto"),
        tag("small", entry.note, class_="quiet") if entry.note else None,
        class_="aside" if who not in _SPEAKERS else None,
    )


def autoplay_on_next_page(path: str) -> None:
    """Autoplay the call when this tab next opens the given path: the user has pressed a button to hear it."""
    ui.run_javascript(f"sessionStorage.setItem('pramana-play', {json.dumps(path)})")


def add_player(call: CallView) -> None:
    """Add the player, the waveform that follows it, and the transcript beside them."""
    seconds = call.duration_seconds
    with parts.open_box("halves"):
        with parts.open_box("stack"):
            sound = ui.element("audio").classes("player").props(f"id={PLAYER_ID} controls preload=metadata")
            sound.props('aria-label="Recording of the call: the caller left, the agent right"')
            sound.props["src"] = call.recording
            for event in ("timeupdate", "seeking", "seeked", "loadedmetadata"):
                sound.on(event, js_handler=f"() => {{ {_FOLLOW_PLAYBACK_SCRIPT} }}")
            sound.on("play", js_handler=_ON_PLAY_HANDLER)
            ui.run_javascript(_AUTOPLAY_SCRIPT)
            with ui.element("div").classes("plot"):
                _add_waveform_slider(call, seconds)
                parts.add_markup(draw_time_axis(seconds))
            parts.add_markup(
                tag(
                    "p",
                    f"{format_duration(seconds)}; caller above, agent below (left and right channel of the recording). "
                    "Click the picture or use the arrow keys to move within the call. ",
                    tag("a", "Recording", href=call.recording, download="call.wav"),
                    ", ",
                    tag("a", "event log", href=call.log),
                    class_="quiet small",
                )
            )
        parts.add_markup(render_conversation(call.conversation), classes="told").on(
            "click", js_handler=_PLAY_ENTRY_HANDLER
        )


def _add_waveform_slider(call: CallView, duration_s: float) -> None:
    with ui.element("div").classes("wave") as place:
        parts.add_markup(draw_waveform(call))
    place.props(
        f'id={PICTURE_ID} role=slider tabindex=0 aria-label="Position in the call" aria-valuemin=0 aria-valuenow=0'
    )
    place.props(f'aria-valuemax={duration_s:.3f} aria-valuetext="0.0 of {duration_s:.1f} seconds"')
    place.on("click", js_handler=_SEEK_BY_CLICK_HANDLER).on("keydown", js_handler=_SEEK_BY_KEY_HANDLER)


# ── In the browser ──

_FIND_ELEMENTS_SCRIPT = (
    f'const sound = document.getElementById("{PLAYER_ID}"), place = document.getElementById("{PICTURE_ID}");'
)
_READ_DURATION_SCRIPT = 'const length = Number(place.getAttribute("aria-valuemax"));'
_FOLLOW_PLAYBACK_SCRIPT = f"""
  {_FIND_ELEMENTS_SCRIPT} {_READ_DURATION_SCRIPT}
  const now = sound.currentTime;
  place.querySelector(".playhead").style.left = `${{length ? Math.min(100, 100 * now / length) : 0}}%`;
  place.setAttribute("aria-valuenow", now.toFixed(3));
  place.setAttribute("aria-valuetext", `${{now.toFixed(1)}} of ${{length.toFixed(1)}} seconds`);
  let current = null;
  for (const each of document.querySelectorAll("#{TRANSCRIPT_ID} [data-seek]"))
    if (Number(each.dataset.seek) <= now + 0.05) current = each.closest("li");
  for (const each of document.querySelectorAll("#{TRANSCRIPT_ID} li"))
    if (each === current) each.setAttribute("aria-current", "true"); else each.removeAttribute("aria-current");
"""
_ON_PLAY_HANDLER = f"""() => {{
  {_FIND_ELEMENTS_SCRIPT}
  const step = () => {{ {{ {_FOLLOW_PLAYBACK_SCRIPT} }} if (!sound.paused && sound.isConnected)
  requestAnimationFrame(step); }}; step();
}}"""
_AUTOPLAY_SCRIPT = f"""
if (sessionStorage.getItem("pramana-play") === location.pathname) {{
  sessionStorage.removeItem("pramana-play");
  document.getElementById("{PLAYER_ID}")?.play().catch(() => {{}});  // a browser that forbids it leaves it to a press
}}
"""
_SEEK_BY_CLICK_HANDLER = f"""(event) => {{
  {_FIND_ELEMENTS_SCRIPT} {_READ_DURATION_SCRIPT}
  const box = place.getBoundingClientRect();
  sound.currentTime = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)) * length;
}}"""
_SEEK_BY_KEY_HANDLER = f"""(event) => {{
  {_FIND_ELEMENTS_SCRIPT} {_READ_DURATION_SCRIPT}
  const by = {{ArrowLeft: -{_STEP_S}, ArrowDown: -{_STEP_S}, ArrowRight: {_STEP_S}, ArrowUp: {_STEP_S},
    PageDown: -{_LEAP_S}, PageUp: {_LEAP_S}, Home: -length, End: length}}[event.key];
  if (by !== undefined) sound.currentTime = Math.max(0, Math.min(length, sound.currentTime + by));
  else if (event.key === " ") {{ if (sound.paused) sound.play(); else sound.pause(); }}
  else return;
  event.preventDefault();
}}"""
_PLAY_ENTRY_HANDLER = f"""(event) => {{
  const pressed = event.target.closest("[data-seek]");
  if (!pressed) return;
  {_FIND_ELEMENTS_SCRIPT}
  sound.currentTime = Number(pressed.dataset.seek);
  sound.play();
}}"""
