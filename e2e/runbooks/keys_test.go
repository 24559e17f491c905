package runbooks

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// Every key is replaced while a client uses its tokens, which stop working only where the page says so.
func TestKeys_EveryKeyIsReplaced(t *testing.T) {
	t.Parallel()
	o := newOperator(t, harness.Options{Authservers: 2})
	ws := o.NewWorkspace(t)
	connector, owner := ws.Connector(t, harness.ReadProgrammes), o.Person(t, ws.Owner)
	tokens := connector.Connect(t, owner)
	o.readFiles(t)
	alive := func(what string) {
		t.Helper()
		if answer := connector.List(t, tokens); answer.Status != http.StatusOK {
			t.Fatalf("after %s:\n%s", what, answer)
		}
		tokens = connector.WantsWorking(t, tokens)
	}

	t.Run("signing keys", func(t *testing.T) {
		first := o.signs(t)
		o.run(t, "keys.md", "signing-rotate")
		alive("signing-rotate")
		if next := o.signs(t); next == first {
			t.Error("the signing key did not change")
		}
		stolen := harness.Decode(t, tokens.AccessToken).Header["kid"].(string)
		o.run(t, "keys.md", "signing-remove", "KID="+stolen)
		connector.List(t, tokens).WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
		tokens = connector.Refresh(t, tokens.RefreshToken).Tokens(t)
		alive("signing-remove")
	})
	t.Run("ALMONER_KEYS", func(t *testing.T) {
		services := []string{"authserver", "resourceapi"}
		replace := func(name string, meanwhile func()) {
			for _, service := range services {
				o.run(t, "keys.md", name, "SERVICE="+service)
			}
			meanwhile()
			for _, service := range services {
				o.wantsChanged(t, service, "ALMONER_KEYS")
			}
		}
		for _, name := range []string{"keys-new", "keys-front"} {
			bothAlive := func() { // at either process
				alive(name)
				alive(name)
			}
			// The processes read the file one after the other, and each accepts the tokens of the other.
			replace(name, bothAlive)
			bothAlive()
			wrong := map[string]string{"keys-new": "keys-old-out", "keys-front": "keys-front"}[name]
			o.fails(t, "after "+name, "keys.md", wrong, "SERVICE=authserver")
		}
		if output := o.run(t, "keys.md", "keys-reseal"); !strings.Contains(output, "Resealed:") {
			t.Errorf("reseal: %s", output)
		}
		replace("keys-old-out", func() {})
		alive("keys-old-out") // the current refresh token is sealed with the new key
	})
	t.Run("a client's secret", func(t *testing.T) {
		app := ws.Confidential(t, "", harness.ReadProgrammes)
		o.writeSecret(t, "token", ws.Token)
		o.run(t, "keys.md", "client-secret", "WORKSPACE="+ws.Workspace.ID, "CLIENT="+app.ClientID)
		var answer map[string]any
		must(t, json.Unmarshal([]byte(o.readSecret(t, "client-secret.json")), &answer))
		renewed := app
		renewed.ClientSecret, _ = answer["clientSecret"].(string)
		met.AddAll(renewed.ClientSecret)
		code := app.Code(t, owner)
		app.Exchange(t, app.Body(code)).WantsFlat(t, http.StatusBadRequest, "invalid_client")
		renewed.Exchange(t, renewed.Body(code)).Tokens(t)
	})
	t.Run("a service's secret", func(t *testing.T) {
		former := o.DemoService()
		o.run(t, "keys.md", "service-new", "NAME=Reporting")
		var answer map[string]string
		must(t, json.Unmarshal([]byte(o.readSecret(t, "service.json")), &answer))
		renewed := former
		renewed.ClientID, renewed.ClientSecret = answer["clientId"], answer["clientSecret"]
		met.AddAll(renewed.ClientSecret)
		introspects := func(s harness.Service, status int) {
			t.Helper()
			s.Introspect(t, tokens.AccessToken).Wants(t, status)
		}
		introspects(former, http.StatusOK)
		introspects(renewed, http.StatusOK)
		o.run(t, "keys.md", "service-old-out", "OLD_CLIENT="+former.ClientID)
		introspects(former, http.StatusUnauthorized)
		introspects(renewed, http.StatusOK)
	})
	t.Run("passwords of the stores", func(t *testing.T) {
		before := map[string]string{}
		for _, service := range []string{"authserver", "resourceapi"} {
			before[service] = o.login(t, service)
			o.run(t, "store-passwords.md", "database-login", "SERVICE="+service)
		}
		o.run(t, "store-passwords.md", "redis-password", "SERVICE=authserver")
		alive("the new passwords")
		for service, login := range before {
			if output := o.run(t, "store-passwords.md", "database-logins"); !strings.Contains(output, login) {
				t.Errorf("no connection of %s has the old login:\n%s", service, output)
			}
			o.run(t, "store-passwords.md", "database-old-login-out", "OLD_LOGIN="+login)
			await.NoError(t, func() error {
				answer := connector.List(t, tokens)
				if answer.Status == http.StatusServiceUnavailable { // its connection was ended
					return errors.New(answer.String())
				}
				return nil
			})
			o.wantsChanged(t, service, "ALMONER_DATABASE_URL")
		}
		o.run(t, "store-passwords.md", "redis-old-password-out", "SERVICE=authserver")
		if users := strings.TrimSpace(o.run(t, "store-passwords.md", "redis-users")); users != "default" {
			t.Errorf("the users of Redis are %q", users)
		}
		o.run(t, "store-passwords.md", "redis-sessions-out")
		// Here both services use the operator's password. deploy/checks/services replaces it where they do not.
		_, complaint, err := o.try(t, "store-passwords.md", "redis-operator-password", "")
		if err == nil || !strings.Contains(complaint, "uses it") {
			t.Errorf("the operator's password is replaced while services use it: %v %s", err, complaint)
		}
		alive("the old passwords went")
	})
}

// login returns the user name in the database URL of a service.
func (o *operator) login(t *testing.T, service string) string {
	t.Helper()
	return o.address(t, o.readSecret(t, service+"-database-url")).User.Username()
}

// signs returns the id of the current signing key.
func (o *operator) signs(t *testing.T) string {
	t.Helper()
	return o.Database.Text(t, "select kid from account.signing_keys where state = 'current'")
}
