// Forms with a password: while the server has too many passwords to check (Almoner-Busy), the form is sent again by itself for two
// minutes, and the password is typed once. Without this file, the page says when to send it again.
(function () {
  var busy = "Many people are signing in right now. Keep this page open: it tries again automatically every few seconds.";
  var notSent = "Not sent. Check your connection and press the button again.";
  var note = document.querySelector("[data-waiting]"); // always in the page, so that screen readers say what it gets
  var sent = null; // the form that waits for its answer

  function say(text, look) {
    note.className = look;
    note.textContent = text;
  }

  function lock(form, locked) {
    form.querySelectorAll("input").forEach(function (input) {
      input.readOnly = locked;
    });
  }

  function stop(text) {
    if (sent) {
      clearTimeout(sent.timer);
      lock(sent.form, false);
      say(text, "alert alert-warn");
      sent = null;
    }
  }

  function show(html) {
    document.open();
    document.write(html);
    document.close();
    var field = document.querySelector("[autofocus]");
    if (field) {
      field.focus();
    }
  }

  function send(one) {
    fetch(one.form.action, { method: "POST", body: one.fields, redirect: "manual" }).then(function (answer) {
      if (sent !== one) {
        return;
      }
      if (answer.type === "opaqueredirect") {
        location.assign(one.fields.get("return") || "/");
        return;
      }
      if (!answer.headers.has("Almoner-Busy") || Date.now() > one.until) {
        return answer.text().then(function (html) {
          if (sent === one) {
            show(html);
          }
        });
      }
      say(busy, "alert alert-warn");
      var seconds = Math.min(Math.max(1, Number(answer.headers.get("Retry-After")) || 1), 10);
      one.timer = setTimeout(send, (seconds + Math.random()) * 1000, one); // not all at the same moment
    }).catch(function () {
      if (sent === one) {
        stop(notSent);
      }
    });
  }

  document.querySelectorAll("form[data-waits]").forEach(function (form) {
    form.addEventListener("submit", function (event) {
      event.preventDefault();
      if (!sent) {
        sent = { form: form, fields: new URLSearchParams(new FormData(form)), until: Date.now() + 120000 };
        lock(form, true);
        say(note.dataset.waiting, "small-print");
        send(sent);
      }
    });
  });

  // The user does something else: another form, or another page.
  document.addEventListener("submit", function (event) {
    if (sent && event.target !== sent.form) {
      stop("");
    }
  });
  window.addEventListener("pagehide", function () {
    stop("");
  });
})();
