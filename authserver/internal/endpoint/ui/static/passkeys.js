// Passkeys: requests a challenge, shows the browser's dialogue, and sends its result as a field of the form. Without this file,
// or in a browser without passkeys, the forms stay hidden and every other sign-in method works.
(function () {
  var kind = window.PublicKeyCredential;
  if (!kind || !kind.parseRequestOptionsFromJSON || !kind.parseCreationOptionsFromJSON) {
    return;
  }

  function challenge(address) {
    return fetch(address, { method: "POST" }).then(function (answer) {
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

  document.querySelectorAll("form[data-passkey]").forEach(function (form) {
    var button = form.querySelector("button");
    var note = form.querySelector("[role=alert]");
    form.hidden = false;
    form.addEventListener("submit", function (event) {
      event.preventDefault();
      button.disabled = true;
      note.hidden = true;
      challenge(form.dataset.options).then(function (options) {
        return dialogue(form, options);
      }).then(function (made) {
        form.elements.credential.value = JSON.stringify(made.toJSON());
        form.submit();
      }).catch(function (problem) {
        button.disabled = false;
        note.textContent = words(problem);
        note.hidden = false;
      });
    });
  });
})();
