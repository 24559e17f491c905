package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/signin/passkey"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
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
	return by.ID, l.BeginSignIn(
		l.Context(),
		by,
		audit.Event{Actor: "user:x", Action: audit.SignInSucceeded, Subject: "sign_in:x"},
	)
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
			signIn, err := l.begin(proof)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.prove(signIn, proof); err != nil {
				t.Fatal(err)
			}
			change, err := l.fixture.Owner.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := change.Exec(t.Context(), sql, l.grant.UserID); err != nil {
				t.Fatal(err)
			}
			begun, proved := make(chan error), make(chan error)
			go func() { _, err := l.begin(proof); begun <- err }()
			go func() { proved <- l.prove(signIn, proof) }()
			l.awaitBlocked(change, 1)
			if err := change.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-begun; !errors.Is(err, session.ErrProofInvalid) {
				t.Errorf("sign-in: %v", err)
			}
			if err := <-proved; !errors.Is(err, session.ErrProofInvalid) {
				t.Errorf("reauthentication: %v", err)
			}
		})
	}
}

func TestSignIn_ProofOfMissingMethodIsRefused(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	l.fixture.Exec(`update account.users set password_hash = null where id = $1`, l.grant.UserID)
	for _, method := range []string{session.Password, session.Passkey, session.OIDC, ""} {
		if _, err := l.begin(session.Proof{Method: method}); !errors.Is(err, session.ErrProofInvalid) {
			t.Errorf("%q: %v", method, err)
		}
	}
}

func TestAllowed_EndedSignInCannotWrite(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	proofs := l.proving()
	ended, err := l.begin(proofs["password"])
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.begin(proofs["password"])
	if err != nil {
		t.Fatal(err)
	}
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
			_, err := l.AddPasskey(ctx, passkey.Passkey{
				ID:           uuid.New(),
				UserID:       user,
				Name:         "New",
				CredentialID: []byte{1},
				PublicKey:    []byte{1},
			}, event)
			return err
		},
		"change the name": func() error { return l.SetName(ctx, user, "New", event) },
		"change the address": func() error {
			request := useraccount.EmailRequest{ID: uuid.New(), UserID: user, Email: "new@example.org"}
			return l.BeginEmailChange(ctx, request, event)
		},
		"delete the account": func() error {
			_, err := l.DeleteUser(ctx, user, event)
			return err
		},
		"remove a passkey": func() error {
			_, err := l.RemovePasskey(ctx, user, proofs["passkey"].PasskeyID, issuer, event)
			return err
		},
		"unlink an account": func() error {
			_, _, err := l.UnlinkIdentity(ctx, user, issuer, true, event)
			return err
		},
		"end the other sign-ins": func() error {
			_, err := l.EndOtherSignIns(ctx, user, ended, event)
			return err
		},
		"end another sign-in": func() error { return l.EndSignIn(ctx, user, other, event) },
		"prove again":         func() error { return l.prove(ended, proofs["password"]) },
	} {
		if err := do(); !errors.Is(err, audit.ErrNotAuthorized) {
			t.Errorf("%s: %v", what, err)
		}
	}
	l.wantCount(3, "of passkey, account and other sign-in are left",
		`select (select count(*) from account.passkeys where user_id = $1) +
		(select count(*) from account.identities where user_id = $1) +
		(select count(*) from account.sign_ins where user_id = $1 and ended_at is null)`, user)
}

// No authorization, the zero one and that of the zero actor allow nothing.
func TestAllowed_WithoutAuthorizationNothingIsWritten(t *testing.T) {
	t.Parallel()
	l := newStoreTest(t)
	user := l.grant.UserID
	for _, a := range []*audit.Authorization{nil, {}, audit.Actor{}.Event("x.done", "x", nil, nil).Authorization} {
		event := audit.Event{UserID: &user, Actor: "user:x", Action: "x.done", Subject: "x", Authorization: a}
		if err := l.SetName(t.Context(), user, "New", event); !errors.Is(err, audit.ErrNotAuthorized) {
			t.Errorf("change the name with %+v: %v", a, err)
		}
		if _, err := l.DeleteUser(t.Context(), user, event); !errors.Is(err, audit.ErrNotAuthorized) {
			t.Errorf("delete the account with %+v: %v", a, err)
		}
		_, err := l.EndMembership(t.Context(), l.grant.WorkspaceID, user, event)
		if !errors.Is(err, audit.ErrNotAuthorized) {
			t.Errorf("end the membership with %+v: %v", a, err)
		}
	}
	event := audit.ByOperator().Event(audit.UserRenamed, "user:"+user.String(), nil, nil)
	if err := l.SetName(t.Context(), user, "New", event); err != nil {
		t.Errorf("an operator: %v", err)
	}
}
