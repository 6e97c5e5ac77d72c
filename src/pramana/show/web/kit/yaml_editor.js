// The browser side of the YAML editor: its label for screen readers, its theme, its marks and its drafts.
// It sets the marks itself, because NiceGUI's own marks come with the server's copy of the text and would overwrite what
// was typed in the meantime.
window.pramanaEditor = (() => {
  const kept = {};
  const marking = {};
  const draft = () => `pramana draft of ${location.pathname}`;

  // Columns count characters; the editor counts UTF-16 code units.
  const units = (text, column) => [...text].slice(0, column - 1).join("").length;

  const remember = (id, text) => {
    try {
      if (text === kept[id]) sessionStorage.removeItem(draft());
      else sessionStorage.setItem(draft(), text);
    } catch {} // storage is full: the draft is not kept, nothing else fails
  };

  async function begin(id, named) {
    const view = await getElement(id).editorPromise;
    const CM = await import("nicegui-codemirror");
    const set = CM.StateEffect.define();
    class Number extends CM.GutterMarker {
      elementClass = "wrong-number";
    }
    const marks = CM.StateField.define({
      create: () => CM.Decoration.none,
      update(found, change) {
        found = found.map(change.changes);
        for (const effect of change.effects) if (effect.is(set)) found = effect.value;
        return found;
      },
      provide: (field) => [
        CM.EditorView.decorations.from(field),
        CM.gutterLineClass.from(field, (found) => {
          const numbers = [];
          found.between(0, 1e9, (from, to, mark) => {
            if (mark.spec.said && !mark.spec.warned) numbers.push(new Number().range(from));
          });
          return CM.RangeSet.of(numbers, true);
        }),
      ],
    });
    const said = CM.hoverTooltip((view, position) => {
      const line = view.state.doc.lineAt(position);
      const words = [];
      view.state.field(marks).between(line.from, line.from, (from, to, mark) => {
        if (mark.spec.said) words.push(mark.spec.said);
      });
      if (!words.length) return null;
      const create = () => {
        const dom = document.createElement("div");
        dom.textContent = words.join("\n");
        return { dom };
      };
      return { pos: line.from, above: true, create };
    });
    kept[id] = view.state.doc.toString();
    marking[id] = (problems) => {
      const doc = view.state.doc;
      const found = [];
      for (const { line, column, message, warned } of problems) {
        if (line < 1 || line > doc.lines) continue;
        const at = doc.line(line);
        const from = Math.min(at.from + units(at.text, column), at.to);
        found.push(CM.Decoration.line({ class: warned ? "warned-line" : "wrong-line", said: message, warned }).range(at.from));
        if (from < at.to) found.push(CM.Decoration.mark({ class: warned ? "warned-text" : "wrong-text" }).range(from, at.to));
      }
      view.dispatch({ effects: set.of(CM.Decoration.set(found, true)) });
    };
    const attributes = { "aria-label": named.label, "aria-describedby": named.hint, spellcheck: "false", tabindex: "0" };
    view.dispatch({
      effects: CM.StateEffect.appendConfig.of([
        marks,
        said,
        CM.EditorView.contentAttributes.of(attributes),
        CM.EditorState.changeFilter.of((change) => {
          if (!change.docChanged || change.newDoc.length <= named.most) return true;
          queueMicrotask(() => getElement(id).$emit("toolong"));
          return false;
        }),
        CM.EditorView.updateListener.of((update) => {
          if (update.docChanged) remember(id, update.state.doc.toString());
        }),
      ]),
    });
    const dress = () =>
      getElement(id)?.setTheme(document.body.classList.contains("body--dark") ? "githubDark" : "githubLight");
    dress();
    new MutationObserver(dress).observe(document.body, { attributes: true, attributeFilter: ["class"] });
    addEventListener("beforeunload", (event) => {
      if (view.state.doc.toString() !== kept[id]) event.preventDefault();
    });
    document.addEventListener("keydown", (event) => {
      const saves = document.querySelector("[data-saves]");
      if (!saves || !(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "s") return;
      event.preventDefault();
      saves.click();
    });
    let before = null;
    try {
      before = sessionStorage.getItem(draft());
    } catch {}
    if (before !== null && before !== kept[id]) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: before } });
      getElement(id).$emit("draft");
    }
    view.dom.dataset.ready = "yes";
  }

  async function keep(id, text) {
    kept[id] = text;
    const view = await getElement(id).editorPromise;
    remember(id, view.state.doc.toString());
  }

  async function go(id, line, column) {
    const view = await getElement(id).editorPromise;
    const at = view.state.doc.line(Math.max(1, Math.min(line, view.state.doc.lines)));
    const anchor = Math.min(at.from + units(at.text, column), at.to);
    view.dispatch({ selection: { anchor }, scrollIntoView: true });
    view.focus();
  }

  return { begin, keep, go, mark: (id, problems) => marking[id]?.(problems) };
})();
