package attack

import (
	"net/url"

	"github.com/almonerhq/almoner/e2e/harness"
)

// fields returns, by path, the values with which each form would harm the victim. The caller adds key and tenant.
func fields(e *target) map[string]url.Values {
	about := func(id string) url.Values { return url.Values{"id": {id}} }
	return map[string]url.Values{
		"/settings/developers/tokens": {
			"name": {"Planted"}, "days": {"90"}, "permissions": harness.Everything(),
		},
		"/settings/developers/tokens/replace": about(e.personal),
		"/settings/developers/tokens/revoke":  about(e.personal),
		"/settings/developers/apps": {
			"name": {"Planted"}, "kind": {"confidential"}, "redirect_uris": {"https://evil.example/"},
			"permissions": {harness.ReadProgrammes}, "method": {"client_secret_json"},
		},
		"/settings/developers/apps/secret": {"id": {e.app.ClientID}, "expire_old": {"yes"}},
		"/settings/developers/webhooks": {
			"url": {"https://evil.example/"}, "types": {"programme.created"},
		},
		"/settings/developers/webhooks/delete":        about(e.webhook),
		"/settings/developers/webhooks/disable":       about(e.webhook),
		"/settings/developers/webhooks/enable":        about(e.webhook),
		"/settings/developers/webhooks/secret":        about(e.webhook),
		"/settings/developers/webhooks/personal-data": {"id": {e.webhook}, "personal": {"yes"}},
		"/settings/developers/webhooks/test":          about(e.webhook),
		"/settings/developers/webhooks/resend": {
			"id": {e.webhook}, "delivery": {"0199a1c2-7f41-7c55-8b9e-3a4f5d6e7f90"},
		},
		"/settings/developers/apps/delete":   about(e.app.ClientID),
		"/settings/apps/disconnect":          about(e.grant),
		"/settings/apps/disconnect-all":      about(e.app.ClientID),
		"/settings/security/sign-out":        about(e.signIn),
		"/settings/security/sign-out-others": {},
		"/settings/security/tokens/revoke":   about(e.personal),
		"/settings/security/mails":           {}, // turns the optional mails off
		"/settings/security/password": {
			"password": {e.Owner.Password}, "new-password": {"three small boats"}, "end-others": {"yes"},
		},
		"/settings/security/password/remove":      {},
		"/settings/connectors/disconnect":         about(e.grant),
		"/settings/security/authenticator":        {"setup": {"nonsense"}, "code": {"000000"}},
		"/settings/security/authenticator/codes":  {},
		"/settings/security/authenticator/remove": {},
		"/settings/user/name":                     {"name": {"Mallory"}},
		"/settings/user/delete":                   {"confirm": {"yes"}},
		"/settings/user/email":                    {"email": {"eve@evil.example"}},
		"/settings/connectors/llm":                {"state": {"off"}, "confirm": {"yes"}},
		"/settings/connectors/policy": {
			"platforms": {"other"}, "permissions": {harness.ReadForms}, "days": {"1"}, "confirm": {"yes"},
			"seen": {e.policy},
		},
		"/settings/members/invite":   {"email": {"eve@evil.example"}, "permissions": harness.Everything()},
		"/settings/members/renew":    about(e.invitation),
		"/settings/members/withdraw": about(e.invitation),
		"/settings/members/permissions": {
			"id": {e.member}, "permissions": harness.Everything(), "seen": {harness.ReadProgrammes},
		},
		"/settings/members/remove":        {"id": {e.member}, "confirm": {"yes"}},
		"/settings/members/leave":         {"confirm": {"yes"}},
		"/settings/members/second-factor": {"state": {"on"}},
		"/invitation":                     {"token": {e.link}, "decision": {"accept"}},
		"/invitation/account":             {"token": {e.link}, "name": {"Planted"}, "password": {"three small boats"}},
		"/invitation/passkey":             {"token": {e.link}, "name": {"Planted"}, "credential": {"{}"}},
		"/invitation/passkey/options":     {"token": {e.link}, "name": {"Planted"}},
		"/settings/passkey-offer":         {},
		"/settings/passkeys/remove":       about(e.passkey),
		"/settings/passkeys":              {"name": {"Planted"}, "answer": {"{}"}},
		"/settings/passkeys/options":      {},
		"/logout":                         {},
		"/login":                          {"email": {e.Owner.Email}, "password": {e.Owner.Password}},
		"/login/code":                     {"ticket": {"nonsense"}, "code": {"000000"}},
		"/login/forgotten":                {"email": {e.Owner.Email}},
		"/login/reset":                    {"token": {"nonsense"}, "new-password": {"three small boats"}},
		"/email":                          {"token": {"nonsense"}, "decision": {"confirm"}},
		"/login/again":                    {"password": {e.Owner.Password}},
		"/login/passkey":                  {"answer": {"{}"}},
		"/login/passkey/options":          {},
		"/login/again/passkey":            {"answer": {"{}"}},
		"/login/again/passkey/options":    {},
		"/access-requests":                {"ticket": {"nonsense"}},
		"/oauth/authorize":                {"decision": {"approve"}},
		"/oauth/authorize/workspace":      {"decision": {"choose"}, "workspace": {e.Workspace.ID}},
	}
}

// testedElsewhere lists the forms that this stack does not offer, with the test that tries them.
var testedElsewhere = map[string]string{
	"/settings/provider/unlink": "needs an upstream provider: authserver/internal/app, " +
		"TestUnlink_LastSignInMethodIsRefused",
	"/login/upstream/confirm": "needs an upstream provider: authserver/internal/app, " +
		"TestProven_UpstreamTakeoverIsConfirmedFirst",
}
