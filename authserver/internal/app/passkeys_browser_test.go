package app_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
)

// Chromium sends the domain of an address in Punycode.
func TestChromium_Passkeys(t *testing.T) {
	s := shared(t)
	ada := s.personAt("ada-" + uuid.NewString()[:8] + "@münchen.example")
	c := openChromium(t, s)
	c.signIn(ada)
	c.open("/settings/security")
	c.press("a", "Manage passkeys")
	c.verifies(false)
	c.fill("passkey-name", "Work laptop")
	c.picture("passkeys-none")
	c.press("button", "Add passkey")
	c.sees("p", "No passkey was used. You can try again.")
	s.rows(0, "passkeys", "user_id = $1", ada.ID)
	c.verifies(true)
	c.press("button", "Add passkey")
	c.sees("div", "The passkey Work laptop was added.")
	c.picture("passkeys-one")
	made := c.key()
	if !made.IsResidentCredential || made.RpID != "localhost" || string(made.UserHandle) != string(ada.ID[:]) {
		t.Errorf("another kind of passkey: %v %q %x", made.IsResidentCredential, made.RpID, made.UserHandle)
	}
	c.fill("passkey-name", "The same again")
	c.press("button", "Add passkey")
	c.sees("p", "This device already has a passkey for your account.")

	c.signOut()
	c.picture("login")
	c.press("button", "Sign in with a passkey")
	c.sees("dd", ada.Email)
	used := c.key().SignCount
	s.rows(1, "passkeys", "sign_count = $1 and user_id = $2", int64(used), ada.ID)
	if used <= made.SignCount {
		t.Errorf("the counter is %v after %v", used, made.SignCount)
	}

	c.open("/settings/passkeys")
	c.fill("passkey-name", "Phone")
	s.stale()
	c.press("button", "Add passkey")
	c.sees("h1", "Confirm your identity")
	c.open("/settings/passkeys")
	c.press("a", "Confirm your identity")
	c.sees("label", "Password")
	c.picture("again")
	c.press("button", "Use a passkey")
	c.sees("h2", "Add a passkey")

	c.copyWithCounter(0) // before the sign-in page, where the browser may offer the passkey immediately
	c.signOut()
	c.press("button", "Sign in with a passkey")
	c.sees("strong", "This passkey has changed")
	c.picture("login-refused")
	s.recorded(1, audit.PasskeyStopped, ada.ID)
	c.signIn(ada)
	c.open("/settings/passkeys")
	c.sees("p", "This passkey may have been copied")
	c.picture("passkeys-stopped")
	c.press("summary", "Remove Work laptop")
	c.press("button", "Remove Work laptop")
	c.sees("div", "The passkey was removed.")
	s.rows(0, "passkeys", "user_id = $1", ada.ID)
	c.noFaults()
}

func TestChromium_OfferedPasskeySignsInByAutofill(t *testing.T) {
	s := shared(t)
	ada := s.person()
	c := openChromium(t, s)
	c.signIn(ada)
	c.open("/settings/user")
	c.sees("strong", "Add a passkey: Chrome on Linux")
	c.picture("passkey-offer")
	c.press("a", "Add a passkey")
	c.press("button", "Add passkey")
	c.sees("div", "The passkey Chrome on Linux was added.") // the suggested name
	c.open(passwordPage)
	c.press("summary", "Remove the password")
	c.press("button", "Remove my password")
	c.sees("div", "Your password was removed.")
	c.signOut()
	c.fill("email", "a")
	c.sees("dd", ada.Email)
	c.noFaults()
}

func TestChromium_NoPasskeyButtonWithoutScript(t *testing.T) {
	s := shared(t)
	c := openChromium(t, s)
	c.withoutScript()
	c.open("/login")
	c.sees("h1", "Sign in")
	c.do(chromedp.WaitNotVisible(words("button", "Sign in with a passkey")))
	c.signIn(s.person())
	c.open("/settings/passkeys")
	c.sees("p", "Adding a passkey requires JavaScript")
	c.do(chromedp.WaitNotVisible(chromedp.CSS("#passkey-name")))
	c.noFaults()
}
