package postgres_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// Each change of factors, whether or not a workspace requires a second factor, and each write in a workspace that
// requires one, repeats the check of the page in its transaction.
func TestSecondFactor_IsCheckedWhereChangesAreWritten(t *testing.T) {
	l := newStoreTest(t)
	l.withKeys(make([]byte, 32))
	proofs, user := l.proving(), l.grant.UserID
	weak, strong := l.signedIn(proofs["password"]), l.signedIn(proofs["passkey"])
	linked := l.signedIn(proofs["upstream"])
	event := func(signIn uuid.UUID, in uuid.UUID) audit.Event {
		e := audit.Event{Actor: "test", Action: audit.SecondFactorChanged, Subject: "x", Detail: map[string]any{}}
		e.Authorization = &audit.Authorization{UserID: user, SignInID: signIn, WorkspaceID: in}
		if in != uuid.Nil {
			e.Authorization.Permissions = perm.NewSet(perm.ProgrammesRead)
		}
		return e
	}
	here := l.grant.WorkspaceID
	wantErr(t, "required by a password alone", session.ErrSecondFactor,
		l.RequireSecondFactor(t.Context(), here, true, event(weak, here)))
	must(t, l.RequireSecondFactor(t.Context(), here, true, event(strong, here)))
	for signIn, want := range map[uuid.UUID]error{weak: audit.ErrNotAuthorized, strong: nil, linked: nil} {
		wantErr(t, "a write in the workspace", want,
			l.RequireSecondFactor(t.Context(), here, true, event(signIn, here)))
	}
	other := l.fixture.Workspace("Elsewhere")
	l.fixture.Join(other, user, perm.ProgrammesRead)
	wantErr(t, "a write in another workspace", nil,
		l.RequireSecondFactor(t.Context(), other, false, event(weak, other)))
	left := event(weak, uuid.Nil)
	left.Authorization.WorkspaceID = other
	wantErr(t, "leave with a password alone", session.ErrSecondFactor,
		errOf(l.EndMembership(t.Context(), other, user, left)))
	wantErr(t, "delete the account with a password alone", session.ErrSecondFactor,
		errOf(l.DeleteUser(t.Context(), user, event(weak, uuid.Nil))))
	key := passkey.Passkey{ID: uuid.New(), UserID: user, Name: "Thief", PublicKey: []byte{1}, AAGUID: []byte{0}}
	key.CredentialID, key.Transports = key.ID[:], []string{}
	changes := map[string]func(signIn uuid.UUID) error{
		"change the password": func(s uuid.UUID) error {
			return l.ChangePassword(t.Context(), password.Change{
				UserID: user, SignInID: s, Current: proofs["password"], Hash: "hash",
			}, event(s, uuid.Nil))
		},
		"remove the password": func(s uuid.UUID) error {
			return l.RemovePassword(t.Context(), password.Removal{UserID: user, Passkeys: true}, event(s, uuid.Nil))
		},
		"unlink the account": func(s uuid.UUID) error {
			_, _, err := l.UnlinkIdentity(t.Context(), user, issuer, true, event(s, uuid.Nil))
			return err
		},
		"change the address": func(s uuid.UUID) error {
			return l.BeginEmailChange(t.Context(), useraccount.EmailRequest{
				ID: uuid.New(), UserID: user, Email: "thief@example.org",
				OldToken: credential.Secret(uuid.NewString()), NewToken: credential.Secret(uuid.NewString()),
			}, event(s, uuid.Nil))
		},
		"add a passkey": func(s uuid.UUID) error {
			return errOf(l.AddPasskey(t.Context(), key, event(s, uuid.Nil)))
		},
		"remove a passkey": func(s uuid.UUID) error {
			return errOf(l.RemovePasskey(t.Context(), user, key.ID, issuer, event(s, uuid.Nil)))
		},
		"add an app": func(s uuid.UUID) error {
			return l.AddAuthenticator(t.Context(), user, authenticator.Secret("12345678901234567890"), 1,
				[][]byte{make([]byte, 32)}, event(s, uuid.Nil))
		},
		"replace recovery codes": func(s uuid.UUID) error {
			return errOf(l.ReplaceRecoveryCodes(t.Context(), user, [][]byte{make([]byte, 32)}, event(s, uuid.Nil)))
		},
		"remove an app": func(s uuid.UUID) error {
			return errOf(l.RemoveAuthenticator(t.Context(), user, event(s, uuid.Nil)))
		},
	}
	l.fixture.Exec(`update account.tenants set second_factor_required = false where id = any ($1)`,
		[]uuid.UUID{here, other})
	for name, change := range changes {
		wantErr(t, name+" with a password alone, where no workspace requires more", session.ErrSecondFactor,
			change(weak))
	}
	l.fixture.Exec(`update account.tenants set second_factor_required = true where id = $1`, here)
	for _, name := range []string{
		"add a passkey", "remove a passkey", "add an app", "replace recovery codes", "remove an app",
		"change the password", "change the address", "unlink the account",
	} {
		wantErr(t, name+" with a password alone", session.ErrSecondFactor, changes[name](weak))
		wantErr(t, name+" with a second factor", nil, changes[name](strong))
	}
	must(t, l.prove(weak, proofs["password"]))
	wantErr(t, "after the password again", session.ErrSecondFactor, changes["add an app"](weak))
	must(t, l.prove(weak, proofs["passkey"]))
	wantErr(t, "after the passkey", nil, l.RequireSecondFactor(t.Context(), here, true, event(weak, here)))
	wantErr(t, "remove the password with a second factor", nil, changes["remove the password"](strong))
}

// Each function of the store that writes how a user signs in uses changeFactors, or has a reason not to.
func TestFactors_AreChangedByOneRule(t *testing.T) {
	t.Parallel()
	writes := regexp.MustCompile(`(insert into|delete from|update) account\.(passkeys|authenticators|recovery_codes|` +
		`identities|email_changes)\b|password_hash = (\$|null)`)
	others := map[string]string{
		"storePassword":        "its callers change a password by changeFactors, a link or an operator's command",
		"takeOver":             "ends what the account of an unproven address has",
		"LinkIdentity":         "a sign-in at the provider, which has verified the address",
		"UsePasskey":           "a sign-in; it adds and removes nothing",
		"useCode":              "a sign-in",
		"useRecoveryCode":      "a sign-in",
		"insertPasskey":        "called by AddPasskey, and for a new account",
		"insertRecoveryCodes":  "called by AddAuthenticator and ReplaceRecoveryCodes",
		"removeSignInMethods":  "by an operator's command, a link, or takeOver",
		"ResealAuthenticators": "an operator's command; it changes no secret",
		"ConfirmEmailChange":   "the two mailed links",
		"endEmailChange":       "ends a request",
		"respellUser":          "replaces a spelling of the same address",
		"RenewHash":            "a sign-in; stores the same password anew",
		"eraseUser":            "deletes the account",
	}
	found := map[string]bool{}
	files, err := filepath.Glob("*.go")
	must(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		must(t, err)
		for _, text := range strings.Split(string(source), "\nfunc ")[1:] {
			function := regexp.MustCompile(`^(\([^)]*\) )?(\w+)`).FindStringSubmatch(text)[2]
			if !writes.MatchString(text) {
				continue
			}
			found[function] = true
			if others[function] == "" && !strings.Contains(text, ".changeFactors(") {
				t.Errorf("%s: %s changes how a user signs in, without changeFactors", name, function)
			}
		}
	}
	for function := range others {
		if !found[function] {
			t.Errorf("%s changes nothing any more", function)
		}
	}
}
