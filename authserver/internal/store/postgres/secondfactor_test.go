package postgres_test

import (
	"errors"
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
	t.Parallel()
	l := newStoreTest(t)
	l.withKeys(make([]byte, 32))
	proofs, user := l.proving(), l.grant.UserID
	weak, err := l.begin(proofs["password"])
	if err != nil {
		t.Fatal(err)
	}
	strong, err := l.begin(proofs["passkey"])
	if err != nil {
		t.Fatal(err)
	}
	linked, err := l.begin(proofs["upstream"])
	if err != nil {
		t.Fatal(err)
	}
	event := func(signIn uuid.UUID, in uuid.UUID) audit.Event {
		e := audit.Event{Actor: "test", Action: audit.SecondFactorChanged, Subject: "x", Detail: map[string]any{}}
		e.Authorization = &audit.Authorization{UserID: user, SignInID: signIn, WorkspaceID: in}
		if in != uuid.Nil {
			e.Authorization.Permissions = perm.NewSet(perm.ProgrammesRead)
		}
		return e
	}
	here := l.grant.WorkspaceID
	if err := l.RequireSecondFactor(t.Context(), here, true, event(weak, here)); !errors.Is(
		err, session.ErrSecondFactor) {
		t.Errorf("required by a password alone: %v", err)
	}
	if err := l.RequireSecondFactor(t.Context(), here, true, event(strong, here)); err != nil {
		t.Fatal(err)
	}
	for signIn, want := range map[uuid.UUID]error{weak: audit.ErrNotAuthorized, strong: nil, linked: nil} {
		if err := l.RequireSecondFactor(t.Context(), here, true, event(signIn, here)); !errors.Is(err, want) {
			t.Errorf("a write in the workspace: %v, want %v", err, want)
		}
	}
	other := l.fixture.Workspace("Elsewhere")
	l.fixture.Join(other, user, perm.ProgrammesRead)
	if err := l.RequireSecondFactor(t.Context(), other, false, event(weak, other)); err != nil {
		t.Errorf("a write in another workspace: %v", err)
	}
	left := event(weak, uuid.Nil)
	left.Authorization.WorkspaceID = other
	if _, err := l.EndMembership(t.Context(), other, user, left); !errors.Is(err, session.ErrSecondFactor) {
		t.Errorf("leave with a password alone: %v", err)
	}
	if _, err := l.DeleteUser(t.Context(), user, event(weak, uuid.Nil)); !errors.Is(err, session.ErrSecondFactor) {
		t.Errorf("delete the account with a password alone: %v", err)
	}
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
			_, err := l.AddPasskey(t.Context(), key, event(s, uuid.Nil))
			return err
		},
		"remove a passkey": func(s uuid.UUID) error {
			_, err := l.RemovePasskey(t.Context(), user, key.ID, issuer, event(s, uuid.Nil))
			return err
		},
		"add an app": func(s uuid.UUID) error {
			return l.AddAuthenticator(t.Context(), user, authenticator.Secret("12345678901234567890"), 1,
				[][]byte{make([]byte, 32)}, event(s, uuid.Nil))
		},
		"replace recovery codes": func(s uuid.UUID) error {
			_, err := l.ReplaceRecoveryCodes(t.Context(), user, [][]byte{make([]byte, 32)}, event(s, uuid.Nil))
			return err
		},
		"remove an app": func(s uuid.UUID) error {
			_, err := l.RemoveAuthenticator(t.Context(), user, event(s, uuid.Nil))
			return err
		},
	}
	l.fixture.Exec(`update account.tenants set second_factor_required = false where id = any ($1)`,
		[]uuid.UUID{here, other})
	for name, change := range changes {
		if err := change(weak); !errors.Is(err, session.ErrSecondFactor) {
			t.Errorf("%s with a password alone, where no workspace requires more: %v", name, err)
		}
	}
	l.fixture.Exec(`update account.tenants set second_factor_required = true where id = $1`, here)
	for _, name := range []string{
		"add a passkey", "remove a passkey", "add an app", "replace recovery codes", "remove an app",
		"change the password", "change the address", "unlink the account",
	} {
		if err := changes[name](weak); !errors.Is(err, session.ErrSecondFactor) {
			t.Errorf("%s with a password alone: %v", name, err)
		}
		if err := changes[name](strong); err != nil {
			t.Errorf("%s with a second factor: %v", name, err)
		}
	}
	if err := l.prove(weak, proofs["password"]); err != nil {
		t.Fatal(err)
	}
	if err := changes["add an app"](weak); !errors.Is(err, session.ErrSecondFactor) {
		t.Errorf("after the password again: %v", err)
	}
	if err := l.prove(weak, proofs["passkey"]); err != nil {
		t.Fatal(err)
	}
	if err := l.RequireSecondFactor(t.Context(), here, true, event(weak, here)); err != nil {
		t.Errorf("after the passkey: %v", err)
	}
	if err := changes["remove the password"](strong); err != nil {
		t.Errorf("remove the password with a second factor: %v", err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
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
