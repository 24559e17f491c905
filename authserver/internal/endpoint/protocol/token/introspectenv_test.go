package token_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// A introspectEnv is a server with a service that introspects tokens.
type introspectEnv struct {
	*apitest.Server
	t       *testing.T
	service apitest.ClientWithSecret
	user    uuid.UUID
}

func newIntrospectEnv(t *testing.T) *introspectEnv {
	t.Helper()
	b := &introspectEnv{Server: apitest.Own(t), t: t}
	b.service = b.Service()
	b.user = b.Fixture.Member(perm.ProgrammesRead, perm.ProgrammesWrite, perm.AccountAPIAccess)
	return b
}

func (b *introspectEnv) introspect(token credential.Secret) apitest.Answer {
	b.t.Helper()
	return b.FormWith(
		apitest.IntrospectPath,
		apitest.Basic(b.service.ID.String(), b.service.Secret),
		"token",
		token.Reveal(),
	)
}

func (b *introspectEnv) active(what string, token credential.Secret) map[string]any {
	b.t.Helper()
	answer := b.introspect(token)
	if answer.Status != 200 || answer.Object()["active"] != true {
		b.t.Fatalf("%s: %d %s, want it active", what, answer.Status, answer.Body)
	}
	return answer.Object()
}

// inactive requires a response with active:false and nothing else (RFC 7662, section 2.2).
func (b *introspectEnv) inactive(what string, token credential.Secret) {
	b.t.Helper()
	answer := b.introspect(token)
	if answer.Status != 200 || strings.TrimSpace(answer.Body) != `{"active":false}` {
		b.t.Errorf("%s: %d %s, want only active:false", what, answer.Status, answer.Body)
	}
}

func (b *introspectEnv) connector(resource string) (client.Client, apitest.Connection) {
	b.t.Helper()
	c := b.Fixture.Connector(resource, perm.ProgrammesRead, perm.ProgrammesWrite)
	return c, b.Connected(c, b.user)
}

func texts(v any) []string {
	list, ok := v.([]any)
	if !ok {
		return nil
	}
	out := []string{}
	for _, one := range list {
		text, _ := one.(string)
		out = append(out, text)
	}
	return out
}

func (b *introspectEnv) same(what string, got map[string]any, want map[string]any) {
	b.t.Helper()
	for name, value := range want {
		if !reflect.DeepEqual(got[name], value) {
			b.t.Errorf("%s: %s is %v, want %v", what, name, got[name], value)
		}
	}
}

func names(answer map[string]any) map[string]bool {
	out := map[string]bool{}
	for name := range answer {
		out[name] = true
	}
	return out
}
