package ui

// TokenField is the id of the field of the form for a new token in which pat.Refusal and the proof's note belong, or
// "".
func TokenField(name string) string {
	return map[string]string{
		"name": "token-name", "days": "token-days", "permissions": "token-permissions", "password": "password-token",
	}[name]
}

// ProofField is TokenField of the proof's note in the box of a token or an application of this identifier.
func ProofField(id string) string { return "password-" + id }

// AppField is TokenField of the form for a new application, by the names of client.Refusal.
func AppField(name string) string {
	return map[string]string{
		"name":                    "app-name",
		"kind":                    "app-kind",
		"redirectUris":            "app-redirects",
		"requiredPermissions":     "app-permissions",
		"connectorPlatform":       "app-platform",
		"resource":                "app-resource",
		"tokenEndpointAuthMethod": "app-method",
		"password":                "password-app",
	}[name]
}
