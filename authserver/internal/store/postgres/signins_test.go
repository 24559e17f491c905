package postgres_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
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
	by := session.SignIn{
		ID:      uuid.New(),
		UserID:  l.grant.UserID,
		Method:  proof.Method,
		Proof:   proof,
		Expires: time.Now().Add(time.Hour),
	}
	return by.ID, l.BeginSignIn(l.Context(), by,
		audit.Event{Actor: "user:x", Action: audit.SignInSucceeded, Subject: "sign_in:x"})
}

// signedIn is begin with a proof that is accepted.
func (l *storeTest) signedIn(proof session.Proof) uuid.UUID {
	l.Helper()
	signIn, err := l.begin(proof)
	must(l, err)
	return signIn
}

func (l *storeTest) prove(signIn uuid.UUID, proof session.Proof) error {
	return l.ReauthenticateSignIn(l.Context(), l.grant.UserID, proof, audit.Event{
		Actor:         "user:x",
		Action:        audit.SignInProved,
		Subject:       "sign_in:x",
		Authorization: &audit.Authorization{UserID: l.grant.UserID, SignInID: signIn},
	})
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
	proofs := l.proving()
	ended, other := l.signedIn(proofs["password"]), l.signedIn(proofs["password"])
	ctx, user := t.Context(), l.grant.UserID
	event := audit.Event{
		UserID:        &user,
		Actor:         "user:x",
		Action:        "x.done",
		Subject:       "x",
		Authorization: &audit.Authorization{UserID: user, SignInID: ended},
	}
	if err := l.EndSignIn(ctx, user, ended, event); err != nil {
		t.Fatalf("end own sign-in: %v", err)
	}
	for what, do := range map[string]func() error{
		"add a passkey": func() error {
			return errOf(l.AddPasskey(ctx, passkey.Passkey{
				ID:           uuid.New(),
				UserID:       user,
				Name:         "New",
				CredentialID: []byte{1},
				PublicKey:    []byte{1},
			}, event))
		},
		"change the name": func() error { return l.SetName(ctx, user, "New", event) },
		"change the address": func() error {
			request := useraccount.EmailRequest{ID: uuid.New(), UserID: user, Email: "new@example.org"}
			return l.BeginEmailChange(ctx, request, event)
		},
		"delete the account": func() error { return errOf(l.DeleteUser(ctx, user, event)) },
		"remove a passkey": func() error {
			return errOf(l.RemovePasskey(ctx, user, proofs["passkey"].PasskeyID, issuer, event))
		},
		"unlink an account": func() error {
			_, _, err := l.UnlinkIdentity(ctx, user, issuer, true, event)
			return err
		},
		"end the other sign-ins": func() error { return errOf(l.EndOtherSignIns(ctx, user, ended, event)) },
		"end another sign-in":    func() error { return l.EndSignIn(ctx, user, other, event) },
		"prove again":            func() error { return l.prove(ended, proofs["password"]) },
	} {
		wantErr(t, what, audit.ErrNotAuthorized, do())
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

func (l *storeTest) ownEvent(signIn uuid.UUID) audit.Event {
	return audit.Event{
		UserID:        &l.grant.UserID,
		Actor:         "user:x",
		Action:        audit.AuthenticatorAdded,
		Subject:       "user:x",
		Authorization: &audit.Authorization{UserID: l.grant.UserID, SignInID: signIn},
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
		good := 0
		for _, err := range at(begin, begin, begin, begin) {
			if err == nil {
				good++
			} else {
				wantErr(t, what, session.ErrCodeInvalid, err)
			}
		}
		if good != 1 {
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
