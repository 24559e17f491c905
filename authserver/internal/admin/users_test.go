package admin_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store/postgres"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func (b *testEnv) signIn(user string) {
	b.t.Helper()
	b.Fixture.Exec(`insert into account.sign_ins (id, user_id, expires_at, method, address, user_agent)
		values (gen_random_uuid(), $1, now() + interval '12 hours', 'password', '127.0.0.1', 'test')`, user)
}

// wantSignIns requires a number of sign-ins that have not ended.
func (b *testEnv) wantSignIns(what, user string, want int) {
	b.t.Helper()
	b.WantsRows(what, want, `account.sign_ins where user_id = $1 and ended_at is null`, user)
}

func TestAddUser_HasNoPassword(t *testing.T) {
	b := newTestEnv(t)
	email := person()
	added := b.values(admin.AddUser{Email: strings.ToUpper(email), Name: "Ada Okafor"})
	id := b.text(added, "id")
	b.events(audit.UserAdded, "user:"+id, 1)
	one := find(b.list(admin.ListUsers{}), "id", id)
	if added["email"] != email || one["hasPassword"] != false || one["disabledAt"] != nil ||
		one["name"] != "Ada Okafor" {
		t.Errorf("added as %v, listed as %v", added, one)
	}
	for _, address := range []string{
		strings.ToTitle(email[:1]) + email[1:], "", "ada", "@example.org", "ada@", "Ada <ada@example.org>",
		"a b@example.org", strings.Repeat("x", 250) + "@example.org",
	} {
		b.refused("address "+address, admin.AddUser{Email: address, Name: "Ada"})
	}
	b.refused("no name", admin.AddUser{Email: person()})
}

func TestSetPassword_ReadsInputAndEndsSessions(t *testing.T) {
	b := newTestEnv(t)
	id, email := b.added()
	stored := func() (hash credential.Secret) {
		t.Helper()
		const query = `select coalesce(password_hash, '') from account.users where id = $1`
		b.Must(b.Fixture.Owner.QueryRow(t.Context(), query, id).Scan(&hash))
		return hash
	}
	set := func(input string) admin.Command { return admin.SetPassword{User: id, From: strings.NewReader(input)} }
	passwords, err := session.NewPasswords(nil, nil, session.LowestCost())
	b.Must(err)
	const password = "correct horse battery staple"
	for _, input := range []string{password, password + "\n", password + "\r\n"} {
		b.signIn(id)
		b.do(admin.SetPassword{User: strings.ToUpper(email), From: strings.NewReader(input)})
		if right, err := passwords.Matches(stored(), password); err != nil || !right {
			t.Errorf("%q: sign-in refuses the password: %v", input, err)
		}
		b.wantSignIns("with a new password", id, 0)
	}
	b.Contains("the hash of standard cost", stored().Reveal(), "$argon2id$v=19$m=19456,t=2,p=1$")
	b.events(audit.UserPasswordSet, "user:"+id, 3)
	before := stored()
	b.allRefused(map[string]admin.Command{
		"nothing":             set(""),
		"an empty line":       set("\n"),
		"short":               set("elevenchars"),
		"two lines":           set("correct horse\nbattery staple"),
		"NUL":                 set("correct horse\x00 battery"),
		"no text":             set("correct horse \xff battery"),
		"long":                set(strings.Repeat("x", 1025)),
		"longer than is read": set(strings.Repeat("x", 5000)),
		"common":              set("password1234"),
		"the user's name":     set(strings.ReplaceAll(strings.ReplaceAll(email, "@", "-"), ".", "-")),
		"an unknown id":       admin.SetPassword{User: uuid.NewString(), From: strings.NewReader(password)},
		"an unknown address":  admin.SetPassword{User: person(), From: strings.NewReader(password)},
	})
	b.Equal("the password is unchanged", stored() == before, true)
	b.do(set(strings.Repeat("tide lantern quarry ", 52)[:1024]))
	b.Equal("the longest password is accepted", stored() != before, true)
	b.WantsRows("events with the password", 0, `account.audit_events
		where detail::text like '%horse%' or detail::text like '%argon%'`)
}

func TestSetDisabled_UserHasNoAccessUntilEnabled(t *testing.T) {
	b := newTestEnv(t)
	id, held, service := b.user.String(), b.connected(), b.Service()
	token := b.Fixture.Token(b.user, perm.ProgrammesRead)
	b.signIn(id)
	active := func(want bool) {
		t.Helper()
		answer := b.FormWith(apitest.IntrospectPath, apitest.Basic(service.ID.String(), service.Secret),
			"token", token.Reveal())
		b.WantsMembers("a personal access token", answer, map[string]any{"active": want})
	}
	b.wants("at first", admin.DisableUser{User: id}, map[string]any{"changed": true, "disabled": true})
	b.wantSignIns("disabled", id, 0)
	b.Wants("a refresh", b.Refresh(b.app, held.Refresh), 400, "invalid_grant")
	active(false)
	b.wants("again", admin.DisableUser{User: id}, map[string]any{"changed": false})
	b.events(audit.UserDisabled, "user:"+id, 1)
	b.do(admin.EnableUser{User: id})
	b.events(audit.UserEnabled, "user:"+id, 1)
	active(true)
	b.wantSignIns("enabled", id, 0)
	b.Refreshed(b.app, held)
	for _, unknown := range []string{uuid.NewString(), "nobody@example.org", "ada", ""} {
		b.refused("user "+unknown, admin.DisableUser{User: unknown})
	}
}

func TestDeleteUser_EndsAccessAfterDryRun(t *testing.T) {
	b := newTestEnv(t)
	id := b.user.String()
	held := b.connected()
	b.Fixture.Token(b.user, perm.ProgrammesRead)
	b.SetPermissions(b.user, perm.ProgrammesRead, perm.AccountWriteMembers)
	b.signIn(id)
	var got map[string]any
	text := b.printed(b.do(admin.DeleteUser{User: id, DryRun: true}), &got)
	ends, _ := got["ends"].(map[string]any)
	if got["deleted"] != false || ends["connections"] != 1.0 || ends["tokens"] != 1.0 || ends["signIns"] != 1.0 {
		t.Errorf("dry run: %v", got)
	}
	b.Contains("a dry run", text, "Nothing was changed", "1 grant, 1 personal access token, 1 sign-in,",
		"A permission of account has no enabled holder left in Riverside Food Bank")
	b.events(audit.UserDeleted, "user:"+id, 0)
	held = b.Refreshed(b.app, held)
	b.wants("deleted", admin.DeleteUser{User: id}, map[string]any{"deleted": true})
	b.events(audit.UserDeleted, "user:"+id, 1)
	b.events(audit.MemberRemoved, "user:"+id, 1)
	b.Wants("a refresh", b.Refresh(b.app, held.Refresh), 400, "invalid_grant")
	if one := find(b.list(admin.ListUsers{}), "id", id); one != nil {
		t.Errorf("listed as %v", one)
	}
	for _, unknown := range []string{id, uuid.NewString(), "nobody@example.org"} {
		b.refused("user "+unknown, admin.DeleteUser{User: unknown})
		b.refused("user "+unknown, admin.DeleteUser{User: unknown, DryRun: true})
	}
}

func TestSetEmail_ChangesAddressAndEndsRequests(t *testing.T) {
	b := newTestEnv(t)
	id, email, taken := b.user.String(), person(), person()
	b.Fixture.Exec(`insert into account.email_changes (id, user_id, old_email, new_email, old_token_hash,
		new_token_hash, expires_at) select gen_random_uuid(), id, email, 'eve@example.org', sha256($2), sha256($3),
		now() + '1 day' from account.users where id = $1`, b.user, []byte(email), []byte(taken))
	b.wants("changed", admin.SetEmail{User: id, Email: strings.ToUpper(email)}, map[string]any{"email": email})
	b.events(audit.UserEmailChanged, "user:"+id, 1)
	b.WantsRows("users with the new address", 1, `account.users where id = $1 and email = $2`, id, email)
	b.WantsRows("open requests", 0, `account.email_changes where user_id = $1 and ended_at is null`, id)
	b.Fixture.User(taken)
	for _, email := range []string{taken, "ada", ""} {
		b.refused(email, admin.SetEmail{User: id, Email: email})
	}
	b.refused("an unknown user", admin.SetEmail{User: uuid.NewString(), Email: person()})
}

const upstream = "https://id.example.org"

// withSignInMethods creates a signed-in user with a passkey and a linked account.
func (b *testEnv) withSignInMethods() (user, email, passkey string) {
	b.t.Helper()
	user, email = b.added()
	passkey = uuid.NewString()
	b.Fixture.Exec(`insert into account.passkeys
		(id, user_id, name, credential_id, public_key, sign_count, aaguid, transports, backup_eligible, backed_up)
		values ($1, $2, 'Laptop', $3, '\x01', 0, '\x01', '{}', false, false)`, passkey, user, []byte(passkey))
	b.Fixture.Exec(`insert into account.identities (issuer, subject, user_id) values ($1, $2, $3)`, upstream,
		"subject of "+user, user)
	b.signIn(user)
	return user, email, passkey
}

func (b *testEnv) wantsMethods(what, user string, want ...string) {
	b.t.Helper()
	var got []string
	for _, one := range b.list(admin.ListSignInMethods{User: user}) {
		got = append(got, one["id"].(string))
	}
	slices.Sort(got)
	slices.Sort(want)
	b.Equal(what, got, want)
}

func TestSetPassword_NamesOtherMethodsAndRemovesThemOnRequest(t *testing.T) {
	b := newTestEnv(t)
	user, _, passkey := b.withSignInMethods()
	other, _, otherPasskey := b.withSignInMethods()
	set := func(alone bool, want ...string) {
		t.Helper()
		password := strings.NewReader("correct horse battery staple")
		sentence := b.do(admin.SetPassword{User: user, From: password, RemoveOthers: alone}).(admin.Outcome).Sentence
		b.Contains("the sentence", sentence, want...)
	}
	set(false, "passkey "+passkey, "linked account "+upstream, "still sign in", "--remove-others")
	b.wantsMethods("without the option", user, passkey, upstream)
	set(true, "Removed: ", passkey, upstream)
	b.wantsMethods("with the option", user)
	b.wantsMethods("of another user", other, otherPasskey, upstream)
	b.events(audit.PasskeyRemoved, "passkey:"+passkey, 1)
	b.events(audit.IdentityUnlinked, "user:"+user, 1)
	set(false, "no other sign-in method")
}

// queued records the queued mails.
type queued struct{ messages []mail.Message }

func (q *queued) Add(_ context.Context, _ pgx.Tx, m mail.Message) error {
	q.messages = append(q.messages, m)
	return nil
}

// An operator made these changes, so the mails must not suggest that an attacker did.
func TestMails_SayThatOperatorChangedTheAccount(t *testing.T) {
	b := ownTestEnv(t)
	user, _, passkey := b.withSignInMethods()
	mails := &queued{}
	b.service.Store.(*postgres.Store).SendMail(mails)
	b.do(admin.SetPassword{User: user, From: strings.NewReader("correct horse battery staple")})
	b.do(admin.RemoveSignInMethod{User: user, Method: passkey})
	b.do(admin.RemoveSignInMethod{User: user, Method: upstream})
	b.do(admin.SetEmail{User: user, Email: person()})
	var kinds []mail.Kind
	for _, m := range mails.messages {
		kinds = append(kinds, m.Kind)
		b.Equal(string(m.Kind)+" says that an operator did it", m.Data.Operator, true)
	}
	b.Equal("mails", kinds, []mail.Kind{
		mail.PasswordChanged, mail.PasskeyRemoved, mail.AccountUnlinked, mail.EmailChanged, mail.EmailChanged,
	})
}

func TestRemoveSignInMethod_RemovesOneAndSignsOut(t *testing.T) {
	b := newTestEnv(t)
	user, email, passkey := b.withSignInMethods()
	other, _, otherPasskey := b.withSignInMethods()
	b.allRefused(map[string]admin.Command{
		"another user's":              admin.RemoveSignInMethod{User: user, Method: otherPasskey},
		"unknown":                     admin.RemoveSignInMethod{User: user, Method: uuid.NewString()},
		"none":                        admin.RemoveSignInMethod{User: user},
		"issuer":                      admin.RemoveSignInMethod{User: user, Method: "https://elsewhere.example"},
		"an unknown user":             admin.RemoveSignInMethod{User: uuid.NewString(), Method: passkey},
		"the list of an unknown user": admin.ListSignInMethods{User: uuid.NewString()},
	})
	b.wantSignIns("after refusals", user, 1)
	b.do(admin.RemoveSignInMethod{User: email, Method: passkey})
	b.wantsMethods("after the passkey", user, upstream)
	b.wantSignIns("after the passkey", user, 0)
	b.wantSignIns("of another user", other, 1)
	b.do(admin.RemoveSignInMethod{User: user, Method: upstream})
	b.wantsMethods("after both", user)
	b.Fixture.Exec(`insert into account.authenticators (user_id, secret, last_step) values ($1, '\x01', 1)`, user)
	another := strings.NewReader("four quiet lantern boats")
	b.do(admin.SetPassword{User: user, From: another, RemoveOthers: true})
	b.wantsMethods("a new password keeps the app", user, admin.AuthenticatorID)
	b.do(admin.RemoveSignInMethod{User: user, Method: admin.AuthenticatorID})
	b.wantsMethods("after the app", user)
	b.events(audit.AuthenticatorRemoved, "user:"+user, 1)
	b.wantsMethods("of another user", other, otherPasskey, upstream)
	b.events(audit.PasskeyRemoved, "passkey:"+passkey, 1)
	b.events(audit.IdentityUnlinked, "user:"+user, 1)
}

// A link of an operator is marked as such, because it may remove passkeys that a workspace requires.
func TestResetLink_IsMarkedAsOperatorLink(t *testing.T) {
	b := newTestEnv(t)
	user, _, _ := b.withSignInMethods()
	withPages := *b.service
	withPages.AppURL = "https://app.example.org"
	b.service = &withPages
	b.do(admin.ResetLink{User: user})
	b.WantsRows("links of an operator", 1, `account.password_resets where user_id = $1 and by_operator`, user)
}
