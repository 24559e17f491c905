package admin_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/admin"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func (b *testEnv) stored(id string) (hash credential.Secret) {
	b.t.Helper()
	var text string
	const query = `select coalesce(password_hash, '') from account.users where id = $1`
	if err := b.Fixture.Owner.QueryRow(b.t.Context(), query, id).Scan(&text); err != nil {
		b.t.Fatal(err)
	}
	return credential.Secret(text)
}

func (b *testEnv) signIn(user string) {
	b.t.Helper()
	b.Fixture.Exec(`insert into account.sign_ins (id, user_id, expires_at, method, address, user_agent)
		values (gen_random_uuid(), $1, now() + interval '12 hours', 'password', '127.0.0.1', 'test')`, user)
}

func (b *testEnv) signedIn(user string) int {
	b.t.Helper()
	return b.Count(`select count(*) from account.sign_ins where user_id = $1 and ended_at is null`, user)
}

func TestAddUser_HasNoPassword(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	added := b.values(b.do(t.Context(), admin.AddUser{Email: "Ada.Okafor@Example.org", Name: "Ada Okafor"}))
	id := b.text(added, "id")
	if added["email"] != "ada.okafor@example.org" {
		t.Errorf("stored as %v", added["email"])
	}
	b.events(audit.UserAdded, "user:"+id, 1)
	for _, one := range b.list(b.do(t.Context(), admin.ListUsers{})) {
		if one["id"] == id && (one["hasPassword"] != false || one["disabledAt"] != nil || one["name"] != "Ada Okafor") {
			t.Errorf("listed as %v", one)
		}
	}
	result, err := b.do(t.Context(), admin.AddUser{Email: "ADA.okafor@example.org", Name: "Another"})
	b.refused("the address in another case", result, err)
	for _, address := range []string{
		"",
		"ada",
		"@example.org",
		"ada@",
		"Ada <ada@example.org>",
		"a b@example.org",
		strings.Repeat("x", 250) + "@example.org",
	} {
		result, err := b.do(t.Context(), admin.AddUser{Email: address, Name: "Ada"})
		b.refused("address "+address, result, err)
	}
	result, err = b.do(t.Context(), admin.AddUser{Email: "eve@example.org"})
	b.refused("no name", result, err)
}

func TestSetPassword_ReadsInputAndEndsSessions(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	id := b.text(b.values(b.do(t.Context(), admin.AddUser{Email: "ada@example.org", Name: "Ada"})), "id")
	passwords, err := session.NewPasswords(nil, nil, session.LowestCost())
	if err != nil {
		t.Fatal(err)
	}
	const password = "correct horse battery staple"
	for _, input := range []string{password, password + "\n", password + "\r\n"} {
		b.signIn(id)
		b.values(b.do(t.Context(), admin.SetPassword{User: "Ada@example.org", From: strings.NewReader(input)}))
		if right, err := passwords.Matches(b.stored(id), password); err != nil || !right {
			t.Errorf("%q: sign-in refuses the password: %v", input, err)
		}
		if b.signedIn(id) != 0 {
			t.Error("the user is signed in still")
		}
	}
	if !strings.HasPrefix(b.stored(id).Reveal(), "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Error("the hash is not argon2id of the standard cost")
	}
	b.events(audit.UserPasswordSet, "user:"+id, 3)
	before := b.stored(id)
	for what, input := range map[string]string{
		"nothing":             "",
		"an empty line":       "\n",
		"short":               "elevenchars",
		"two lines":           "correct horse\nbattery staple",
		"NUL":                 "correct horse\x00 battery",
		"no text":             "correct horse \xff battery",
		"long":                strings.Repeat("x", 1025),
		"longer than is read": strings.Repeat("x", 5000),
		"common":              "password1234",
		"the user's name":     "ada-example-org",
	} {
		result, err := b.do(t.Context(), admin.SetPassword{User: id, From: strings.NewReader(input)})
		b.refused(what, result, err)
	}
	longest := strings.Repeat("tide lantern quarry ", 52)[:1024]
	b.values(b.do(t.Context(), admin.SetPassword{User: id, From: strings.NewReader(longest)}))
	if b.stored(id) == before {
		t.Error("the longest password is refused")
	}
	result, err := b.do(t.Context(), admin.SetPassword{User: uuid.NewString(), From: strings.NewReader(password)})
	b.refused("an unknown id", result, err)
	result, err = b.do(t.Context(), admin.SetPassword{User: "nobody@example.org", From: strings.NewReader(password)})
	b.refused("an unknown address", result, err)
	if n := b.Count(`select count(*) from account.audit_events
		where detail::text like '%horse%' or detail::text like '%argon%'`); n != 0 {
		t.Error("the password is in the audit log")
	}
}

func TestSetDisabled_UserHasNoAccessUntilEnabled(t *testing.T) {
	t.Parallel()
	b := newTestEnv(t)
	id := b.user.String()
	held := b.Connected(b.app, b.user)
	token := b.Fixture.Token(b.user, perm.ProgrammesRead)
	b.signIn(id)
	got := b.values(b.do(t.Context(), admin.DisableUser{User: id}))
	if got["changed"] != true || got["disabled"] != true {
		t.Errorf("%v", got)
	}
	if b.signedIn(id) != 0 {
		t.Error("the user is signed in still")
	}
	if answer := b.Refresh(b.app, held.Refresh); answer.Status != 400 {
		t.Errorf("a refresh: %d", answer.Status)
	}
	service := b.Service()
	introspect := func() bool {
		answer := b.FormWith(
			apitest.IntrospectPath,
			apitest.Basic(service.ID.String(), service.Secret),
			"token",
			token.Reveal(),
		)
		return answer.Object()["active"] == true
	}
	if introspect() {
		t.Error("a personal access token still works")
	}
	if again := b.values(b.do(t.Context(), admin.DisableUser{User: id})); again["changed"] != false {
		t.Errorf("again: %v", again)
	}
	b.events(audit.UserDisabled, "user:"+id, 1)
	b.values(b.do(t.Context(), admin.EnableUser{User: id}))
	b.events(audit.UserEnabled, "user:"+id, 1)
	if !introspect() || b.signedIn(id) != 0 {
		t.Error("enabled: the token does not work, or a former sign-in came back")
	}
	b.Refreshed(b.app, held)
	for _, unknown := range []string{uuid.NewString(), "nobody@example.org", "ada", ""} {
		result, err := b.do(t.Context(), admin.DisableUser{User: unknown})
		b.refused("user "+unknown, result, err)
	}
}
