package client

import "time"

// A Kind is the kind of software that a client is.
type Kind string

// The kinds (contract, sections 2 to 5).
const (
	Confidential Kind = "confidential"
	Connector    Kind = "connector"
	Service      Kind = "service"
)

// An AuthMethod is how a client authenticates at the token endpoint (RFC 7591, section 2, and the spec's own JSON
// body).
type AuthMethod string

// The methods. SecretJSON is the spec's body (4.3) and the default of confidential clients. PrivateKeyJWT (RFC 7523) is
// only for clients that are known by their documents.
const (
	AuthNone      AuthMethod = "none"
	SecretJSON    AuthMethod = "client_secret_json"
	SecretPost    AuthMethod = "client_secret_post"
	SecretBasic   AuthMethod = "client_secret_basic"
	PrivateKeyJWT AuthMethod = "private_key_jwt"
)

// CodeLife is the lifetime of an authorization code (contract, section 3).
const CodeLife = 60 * time.Second

// Traits are the properties of a kind.
type Traits struct {
	Public         bool          // has no secret
	Authorizes     bool          // may send users to the consent page
	PKCERequired   bool          // S256 challenge and verifier (RFC 7636)
	ResourceNeeded bool          // must name its resource (RFC 8707)
	Refreshes      bool          // gets rotating refresh tokens
	NeedsLLM       bool          // works only while the workspace's LLM integration is on
	AllOrNothing   bool          // the user must hold every required permission
	AccessLife     time.Duration // maximum lifetime of an access token
	GrantLife      time.Duration // lifetime of a grant, from consent
}

// AllowedBy reports whether clients of this kind may act in a workspace whose LLM integration is on, or off (spec 4.4).
func (k Kind) AllowedBy(llmIntegration bool) bool { return llmIntegration || !k.Traits().NeedsLLM }

// A confidential grant ends CodeLife later than its access token could end at the earliest. The token then always lives
// 90 days (spec 8), no matter when within its minute the code is exchanged.
var traits = map[Kind]Traits{
	Confidential: {
		Authorizes:   true,
		AllOrNothing: true,
		AccessLife:   90 * 24 * time.Hour,
		GrantLife:    90*24*time.Hour + CodeLife,
	},
	Connector: {
		Public:         true,
		Authorizes:     true,
		PKCERequired:   true,
		ResourceNeeded: true,
		Refreshes:      true,
		NeedsLLM:       true,
		AccessLife:     time.Hour,
		GrantLife:      30 * 24 * time.Hour,
	},
	Service: {},
}

// Traits returns the kind's row of the table. An unknown kind has the zero Traits, which allow nothing.
func (k Kind) Traits() Traits { return traits[k] }
