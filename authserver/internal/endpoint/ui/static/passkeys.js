// Passkeys: requests a challenge, shows the browser's dialogue, and sends its result as a field of the form. Without this file,
// or in a browser without passkeys, the forms stay hidden and every other sign-in method works.
(function () {
  var kind = window.PublicKeyCredential;
  if (!kind || !kind.parseRequestOptionsFromJSON || !kind.parseCreationOptionsFromJSON) {
    return;
  }

  function challenge(form) {
    var fields = new URLSearchParams(new FormData(form));
    return fetch(form.dataset.options, { method: "POST", body: fields }).then(function (answer) {
      return answer.json().then(function (content) {
        if (content.next) {
          location.assign(content.next);
        }
        if (!answer.ok) {
          throw new Error(content.message);
        }
        return content;
      });
    });
  }

  function dialogue(form, options) {
    if (form.dataset.passkey === "create") {
      return navigator.credentials.create({ publicKey: kind.parseCreationOptionsFromJSON(options) });
    }
    return navigator.credentials.get({ publicKey: kind.parseRequestOptionsFromJSON(options) });
  }

  function send(form, made) {
    form.elements.credential.value = JSON.stringify(made.toJSON());
    form.submit();
  }

  function words(problem) {
    switch (problem.name) {
      case "NotAllowedError":
        return "No passkey was used. You can try again.";
      case "InvalidStateError":
        return "This device already has a passkey for your account.";
      case "Error":
        return problem.message;
    }
    return "That did not work. Please try again.";
  }

  // Autofill: the browser lists passkeys at the e-mail field (mediation "conditional"). The challenge is requested when the
  // user first does something on the page, and again if it is almost expired. Failures are not shown.
  var asked = 0;
  var autofill = null;
  var field = document.querySelector("input[autocomplete~=webauthn]");
  var signIn = document.querySelector("form[data-passkey=get]");

  function stopAutofill() {
    asked = Infinity;
    if (autofill) {
      autofill.abort();
    }
  }

  function startAutofill() {
    if (Date.now() - asked < 240000) {
      return;
    }
    asked = Date.now();
    if (autofill) {
      autofill.abort();
    }
    var current = autofill = new AbortController();
    challenge(signIn).then(function (options) {
      return navigator.credentials.get({
        publicKey: kind.parseRequestOptionsFromJSON(options),
        mediation: "conditional",
        signal: current.signal
      });
    }).then(function (made) {
      send(signIn, made);
    }).catch(function () {});
  }

  if (field && signIn && kind.isConditionalMediationAvailable) {
    kind.isConditionalMediationAvailable().then(function (available) {
      if (available) {
        ["pointermove", "pointerdown", "keydown"].forEach(function (event) {
          document.addEventListener(event, startAutofill);
        });
      }
    });
  }

  document.querySelectorAll("form[data-passkey]").forEach(function (form) {
    var button = form.querySelector("button");
    var note = form.querySelector("[role=alert]");
    form.hidden = false;
    form.addEventListener("submit", function (event) {
      event.preventDefault();
      button.disabled = true;
      note.hidden = true;
      stopAutofill();
      form.querySelectorAll("[data-from]").forEach(function (field) {
        field.value = document.getElementById(field.dataset.from).value;
      });
      challenge(form).then(function (options) {
        return dialogue(form, options);
      }).then(function (made) {
        send(form, made);
      }).catch(function (problem) {
        button.disabled = false;
        note.textContent = words(problem);
        note.hidden = false;
      });
    });
  });
})();
