package postgres_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
)

const issuer = "https://id.example.org"

// proving gives the user a password, a passkey and a linked account, and returns a proof by each.
func (l *storeTest) proving() map[string]session.Proof {
	l.Helper()
	key, user := uuid.New(), l.grant.UserID
	l.fixture.Exec(`update account.users set password_hash = 'hash' where id = $1`, user)
	l.fixture.Exec(`insert into account.passkeys (id, user_id, name, credential_id, public_key, sign_count, aaguid,
			transports, backup_eligible, backed_up)
		values ($1, $2, 'Key', $3, '\x01', 0, '\x00', '{}', false, false)`, key, user, key[:])
	l.fixture.Exec(`insert into account.identities (issuer, subject, user_id) values ($1, $2, $3)`, issuer,
		user.String(), user)
	return map[string]session.Proof{
		"password": {Method: session.Password, PasswordHash: "hash"},
		"passkey":  {Method: session.Passkey, PasskeyID: key},
		"upstream": {Method: session.OIDC, Issuer: issuer, Subject: user.String()},
	}
}

// begin signs in with a proof.
func (l *storeTest) begin(proof session.Proof) (uuid.UUID, error) {
	by := session.SignIn{ID: uuid.New(), UserID: l.grant.UserID, Method: proof.Method, Proof: proof}
	by.Expires = time.Now().Add(time.Hour)
	return by.ID, l.BeginSignIn(l.Context(), by, audit.Event{Actor: "user:x", Action: "x.done", Subject: "user:x"})
}

// signedIn is begin with a proof that is accepted.
func (l *storeTest) signedIn(proof session.Proof) uuid.UUID {
	l.Helper()
	signIn, err := l.begin(proof)
	must(l, err)
	return signIn
}

func (l *storeTest) prove(signIn uuid.UUID, proof session.Proof) error {
	return l.ReauthenticateSignIn(l.Context(), l.grant.UserID, proof, l.ownEvent(signIn))
}

// ownEvent returns the event of what the user does who signed in with signIn.
func (l *storeTest) ownEvent(signIn uuid.UUID) audit.Event {
	by := audit.Authorization{UserID: l.grant.UserID, SignInID: signIn}
	return audit.Actor{Authorization: by}.Event("x.done", "user:x", map[string]any{}, nil)
}

func TestSignIn_RemovedProofIsRefused(t *testing.T) {
	t.Parallel()
	for what, sql := range map[string]string{
		"password": `update account.users set password_hash = 'another' where id = $1`,
		"passkey":  `delete from account.passkeys where user_id = $1`,
		"upstream": `delete from account.identities where user_id = $1`,
	} {
		t.Run(what, func(t *testing.T) {
			l := newStoreTest(t)
			proof := l.proving()[what]
			signIn := l.signedIn(proof)
			must(t, l.prove(signIn, proof))
			change := l.lock(sql, l.grant.UserID)
			begun, proved := make(chan error), make(chan error)
			go func() { _, err := l.begin(proof); begun <- err }()
			go func() { proved <- l.prove(signIn, proof) }()
			l.awaitBlocked(change, 1)
			must(t, change.Commit(t.Context()))
			wantErr(t, "sign-in", session.ErrProofInvalid, <-begun)
			wantErr(t, "reauthentication", session.ErrProofInvalid, <-proved)
		})
	}
}

func TestSignIn_ProofOfMissingMethodIsRefused(t *testing.T) {
	l := newStoreTest(t)
	l.fixture.Exec(`update account.users set password_hash = null where id = $1`, l.grant.UserID)
	for _, method := range []string{session.Password, session.Passkey, session.OIDC, ""} {
		wantErr(t, fmt.Sprintf("%q", method), session.ErrProofInvalid, errOf(l.begin(session.Proof{Method: method})))
	}
}

func TestAllowed_EndedSignInCannotWrite(t *testing.T) {
	l := newStoreTest(t)
	l.withKeys(make([]byte, 32))
	proofs := l.proving()
	ended, other := l.signedIn(proofs["password"]), l.signedIn(proofs["password"])
	ctx, user := t.Context(), l.grant.UserID
	event := l.ownEvent(ended)
	must(t, l.EndSignIn(ctx, user, ended, event))
	others := map[string]func(audit.Event) error{
		"change the name":        func(e audit.Event) error { return l.SetName(ctx, user, "New", e) },
		"delete the account":     func(e audit.Event) error { return errOf(l.DeleteUser(ctx, user, e)) },
		"end the other sign-ins": func(e audit.Event) error { return errOf(l.EndOtherSignIns(ctx, user, ended, e)) },
		"end another sign-in":    func(e audit.Event) error { return l.EndSignIn(ctx, user, other, e) },
		"prove again":            func(audit.Event) error { return l.prove(ended, proofs["password"]) },
	}
	for _, changes := range []map[string]func(audit.Event) error{l.factorChanges(proofs), others} {
		for what, change := range changes {
			wantErr(t, what, audit.ErrNotAuthorized, change(event))
		}
	}
	l.wantCount(3, "of passkey, account and other sign-in are left",
		`select (select count(*) from account.passkeys where user_id = $1) +
		(select count(*) from account.identities where user_id = $1) +
		(select count(*) from account.sign_ins where user_id = $1 and ended_at is null)`, user)
}

// No authorization, the zero one and that of the zero actor allow nothing.
func TestAllowed_WithoutAuthorizationNothingIsWritten(t *testing.T) {
	l := newStoreTest(t)
	user := l.grant.UserID
	for _, a := range []*audit.Authorization{nil, {}, audit.Actor{}.Event("x.done", "x", nil, nil).Authorization} {
		event := audit.Event{UserID: &user, Actor: "user:x", Action: "x.done", Subject: "x", Authorization: a}
		wantErr(t, fmt.Sprintf("change the name with %+v", a), audit.ErrNotAuthorized,
			l.SetName(t.Context(), user, "New", event))
		wantErr(t, fmt.Sprintf("delete the account with %+v", a), audit.ErrNotAuthorized,
			errOf(l.DeleteUser(t.Context(), user, event)))
		wantErr(t, fmt.Sprintf("end the membership with %+v", a), audit.ErrNotAuthorized,
			errOf(l.EndMembership(t.Context(), l.grant.WorkspaceID, user, event)))
	}
	event := audit.ByOperator().Event(audit.UserRenamed, "user:"+user.String(), nil, nil)
	wantErr(t, "an operator", nil, l.SetName(t.Context(), user, "New", event))
}

// withKeys makes the store seal the secrets of authenticator apps with these master keys.
func (l *storeTest) withKeys(keys ...[]byte) {
	l.Helper()
	box, err := authenticator.NewBox(seal.NewKeys(keys...))
	must(l, err)
	l.UseAuthenticators(box)
}

// withApp sets an app up for the user, whose earlier codes are not used.
func (l *storeTest) withApp(signIn uuid.UUID) (authenticator.Secret, []credential.Secret) {
	l.Helper()
	secret, err := authenticator.NewSecret(rand.Reader)
	must(l, err)
	codes, hashes, err := authenticator.NewRecoveryCodes(rand.Reader)
	if err == nil {
		err = l.AddAuthenticator(l.Context(), l.grant.UserID, secret, 1, hashes, l.ownEvent(signIn))
	}
	must(l, err)
	return secret, codes
}

// factorChanges returns the changes of how the user signs in, each with the event of who makes it.
func (l *storeTest) factorChanges(proofs map[string]session.Proof) map[string]func(audit.Event) error {
	ctx, user, codes := l.Context(), l.grant.UserID, [][]byte{make([]byte, 32)}
	key := passkey.Passkey{ID: uuid.New(), UserID: user, Name: "Thief", PublicKey: []byte{1}, AAGUID: []byte{0}}
	key.CredentialID, key.Transports = key.ID[:], []string{}
	secret := authenticator.Secret("12345678901234567890")
	return map[string]func(audit.Event) error{
		"change the password": func(e audit.Event) error {
			return l.ChangePassword(ctx, password.Change{
				UserID: user, SignInID: e.Authorization.SignInID, Current: proofs["password"], Hash: "hash",
			}, e)
		},
		"remove the password": func(e audit.Event) error {
			return l.RemovePassword(ctx, password.Removal{UserID: user, Passkeys: true}, e)
		},
		"unlink the account": func(e audit.Event) error {
			_, _, err := l.UnlinkIdentity(ctx, user, issuer, true, e)
			return err
		},
		"change the address": func(e audit.Event) error {
			return l.BeginEmailChange(ctx, useraccount.EmailRequest{
				ID: uuid.New(), UserID: user, Email: "thief@example.org",
				OldToken: credential.Secret(uuid.NewString()), NewToken: credential.Secret(uuid.NewString()),
			}, e)
		},
		"add a passkey": func(e audit.Event) error { return errOf(l.AddPasskey(ctx, key, e)) },
		"remove a passkey": func(e audit.Event) error {
			return errOf(l.RemovePasskey(ctx, user, key.ID, issuer, e))
		},
		"add an app": func(e audit.Event) error { return l.AddAuthenticator(ctx, user, secret, 1, codes, e) },
		"replace recovery codes": func(e audit.Event) error {
			return errOf(l.ReplaceRecoveryCodes(ctx, user, codes, e))
		},
		"remove an app": func(e audit.Event) error { return errOf(l.RemoveAuthenticator(ctx, user, e)) },
	}
}

func TestAuthenticator_SecretsAreSealedAndResealed(t *testing.T) {
	l := ownStoreTest(t)
	older, newer := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	l.withKeys(older)
	proofs := l.proving()
	proof := proofs["password"]
	secret, _ := l.withApp(l.signedIn(proofs["passkey"])) // the user has a second factor
	var stored []byte
	l.fixture.Read(`select secret from account.authenticators`, &stored)
	if bytes.Contains(stored, secret) {
		t.Error("the secret is stored in the clear")
	}
	l.withKeys(newer, older)
	if n, err := l.ResealAuthenticators(t.Context()); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	l.withKeys(newer)
	code, err := secret.Code(time.Now())
	must(t, err)
	proof.Code = credential.Secret(code)
	wantErr(t, "after the older key was removed", nil, errOf(l.begin(proof)))
}

func TestAuthenticator_CodeIsGoodOnceAtSameTime(t *testing.T) {
	l := newStoreTest(t)
	l.withKeys(bytes.Repeat([]byte{1}, 32))
	proofs := l.proving()
	proof := proofs["password"]
	signIn := l.signedIn(proofs["passkey"]) // the user has a second factor
	secret, recovery := l.withApp(signIn)
	wantErr(t, "without a code", session.ErrCodeNeeded, errOf(l.begin(proof)))
	wantErr(t, "reauthentication without a code", session.ErrCodeNeeded, l.prove(signIn, proof))
	code, err := secret.Code(time.Now())
	must(t, err)
	for what, code := range map[string]credential.Secret{
		"a code":          credential.Secret(code),
		"a recovery code": recovery[0],
	} {
		proof.Code = code
		begin := func() error { return errOf(l.begin(proof)) }
		if good := succeeded(t, what, session.ErrCodeInvalid, at(begin, begin, begin, begin)); good != 1 {
			t.Errorf("%s is good %d times", what, good)
		}
	}
	status, err := l.Authenticator(t.Context(), l.grant.UserID)
	if err != nil || !status.Active || status.RecoveryCodes != authenticator.RecoveryCodes-1 {
		t.Errorf("%+v, %v", status, err)
	}
	wantErr(t, "a second app", authenticator.ErrExists,
		l.AddAuthenticator(t.Context(), l.grant.UserID, secret, 1, nil, l.ownEvent(signIn)))
	if removed, err := l.RemoveAuthenticator(t.Context(), l.grant.UserID, l.ownEvent(signIn)); !removed || err != nil {
		t.Errorf("%t, %v", removed, err)
	}
	proof.Code = ""
	wantErr(t, "after the removal", nil, errOf(l.begin(proof)))
}

// Each change of factors, whether or not a workspace requires a second factor, and each write in a workspace that
// requires one, repeats the check of the page in its transaction.
func TestSecondFactor_IsCheckedWhereChangesAreWritten(t *testing.T) {
	l := newStoreTest(t)
	l.withKeys(make([]byte, 32))
	proofs, user := l.proving(), l.grant.UserID
	weak, strong := l.signedIn(proofs["password"]), l.signedIn(proofs["passkey"])
	linked := l.signedIn(proofs["upstream"])
	in := func(signIn, workspaceID uuid.UUID) audit.Event {
		e := l.ownEvent(signIn)
		e.Authorization.WorkspaceID, e.Authorization.Permissions = workspaceID, perm.NewSet(perm.ProgrammesRead)
		return e
	}
	here := l.grant.WorkspaceID
	wantErr(t, "required by a password alone", session.ErrSecondFactor,
		l.RequireSecondFactor(t.Context(), here, true, in(weak, here)))
	must(t, l.RequireSecondFactor(t.Context(), here, true, in(strong, here)))
	for signIn, want := range map[uuid.UUID]error{weak: audit.ErrNotAuthorized, strong: nil, linked: nil} {
		wantErr(t, "a write in the workspace", want,
			l.RequireSecondFactor(t.Context(), here, true, in(signIn, here)))
	}
	other := l.fixture.Workspace("Elsewhere")
	l.fixture.Join(other, user, perm.ProgrammesRead)
	wantErr(t, "a write in another workspace", nil,
		l.RequireSecondFactor(t.Context(), other, false, in(weak, other)))
	left := l.ownEvent(weak)
	left.Authorization.WorkspaceID = other
	wantErr(t, "leave with a password alone", session.ErrSecondFactor,
		errOf(l.EndMembership(t.Context(), other, user, left)))
	wantErr(t, "delete the account with a password alone", session.ErrSecondFactor,
		errOf(l.DeleteUser(t.Context(), user, l.ownEvent(weak))))
	changes := l.factorChanges(proofs)
	l.fixture.Exec(`update account.tenants set second_factor_required = false where id = any ($1)`,
		[]uuid.UUID{here, other})
	for name, change := range changes {
		wantErr(t, name+" with a password alone, where no workspace requires more", session.ErrSecondFactor,
			change(l.ownEvent(weak)))
	}
	l.fixture.Exec(`update account.tenants set second_factor_required = true where id = $1`, here)
	for _, name := range []string{
		"add a passkey", "remove a passkey", "add an app", "replace recovery codes", "remove an app",
		"change the password", "change the address", "unlink the account",
	} {
		wantErr(t, name+" with a password alone", session.ErrSecondFactor, changes[name](l.ownEvent(weak)))
		wantErr(t, name+" with a second factor", nil, changes[name](l.ownEvent(strong)))
	}
	must(t, l.prove(weak, proofs["password"]))
	wantErr(t, "after the password again", session.ErrSecondFactor, changes["add an app"](l.ownEvent(weak)))
	must(t, l.prove(weak, proofs["passkey"]))
	wantErr(t, "after the passkey", nil, l.RequireSecondFactor(t.Context(), here, true, in(weak, here)))
	wantErr(t, "remove the password with a second factor", nil, changes["remove the password"](l.ownEvent(strong)))
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
