package settings

import "github.com/almonerhq/almoner/authserver/internal/account/audit"

// signInMethodWords describes events of the authentication methods. It returns the name of any other action.
func signInMethodWords(e audit.Entry) string {
	name, _ := e.Detail["name"].(string)
	switch e.Action {
	case "sign_in.proved":
		return "Confirmed who is at the browser"
	case "sign_in.refused":
		return "A sign-in at another provider was refused"
	case "identity.linked":
		return "Linked an account at another provider, by its verified e-mail address"
	case "identity.unlinked":
		return "Unlinked the account at another provider"
	case "passkey.added":
		return "Added the passkey " + name
	case "passkey.removed":
		return "Removed a passkey"
	case passkeyStopped:
		return "The passkey " + name + " was stopped, because it may have been copied"
	}
	return e.Action
}

const passkeyStopped = "passkey.stopped"
