package settings

import "github.com/almonerhq/almoner/authserver/internal/account/audit"

// signInMethodWords describes events of the authentication methods. It returns the name of any other action.
func signInMethodWords(e audit.Entry) string {
	name, _ := e.Detail["name"].(string)
	switch e.Action {
	case "sign_in.proved":
		return "Confirmed identity"
	case "sign_in.refused":
		return "A sign-in with the identity provider was refused"
	case "identity.linked":
		return "Linked an account at the identity provider by its verified e-mail address"
	case "identity.unlinked":
		return "Unlinked the account at the identity provider"
	case "passkey.added":
		return "Added the passkey " + name
	case "passkey.removed":
		return "Removed a passkey"
	case passkeyStopped:
		return "The passkey " + name + " was blocked because it may have been copied"
	}
	return e.Action
}

const passkeyStopped = "passkey.stopped"
