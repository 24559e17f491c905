package token_test

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func TestIntrospect_OutageIsNeverInactive(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	_, held := b.connector(apitest.REST)
	personal := b.Fixture.Token(b.user, perm.ProgrammesRead)
	restore := b.CutPostgres()
	for what, token := range map[string]credential.Secret{
		"access token":          held.Access,
		"personal access token": personal,
		"garbage":               "word",
	} {
		answer := b.introspect(token)
		if answer.Status != 503 || answer.Text("error") != "temporarily_unavailable" ||
			answer.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", what, answer.Status, answer.Body)
		}
	}
	restore()
	b.active("afterwards", held.Access)
	if strings.Contains(b.Log.String(), personal.Reveal()) || strings.Contains(b.Log.String(), held.Access.Reveal()) {
		t.Error("a token is in the log")
	}
}

func TestIntrospect_OutageAfterAuthenticationIsNeverInactive(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	_, held := b.connector(apitest.REST)
	personal := b.Fixture.Token(b.user, perm.ProgrammesRead)
	lock, err := b.Fixture.Owner.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(t.Context()) }()
	if _, err := lock.Exec(t.Context(), `lock table account.memberships in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	for what, token := range map[string]credential.Secret{
		"access token":          held.Access,
		"personal access token": personal,
	} {
		if answer := b.introspect(token); answer.Status != 503 {
			t.Errorf("%s: %d %s", what, answer.Status, answer.Body)
		}
	}
}

func TestIntrospect_WithoutKeysNoTokenIsInactive(t *testing.T) {
	t.Parallel()
	_, held := newIntrospectEnv(t).connector(apitest.REST)
	b := &introspectEnv{Server: startWithoutKeys(t), t: t}
	b.service = b.Service()
	b.user = b.Fixture.Member(perm.ProgrammesRead)
	personal := b.Fixture.Token(b.user, perm.ProgrammesRead)
	for _, token := range []credential.Secret{held.Access, "a.b.c", personal} {
		if answer := b.introspect(token); answer.Status != 503 {
			t.Errorf("%d %s", answer.Status, answer.Body)
		}
	}
	restoreKeys(b.Server)
	b.inactive("garbage", "a.b.c")
	b.active("personal access token", personal)
}

func TestIntrospect_WorksWithoutRedis(t *testing.T) {
	t.Parallel()
	b := newIntrospectEnv(t)
	_, held := b.connector(apitest.REST)
	b.Redis.Kill()
	b.active("access token", held.Access)
}
