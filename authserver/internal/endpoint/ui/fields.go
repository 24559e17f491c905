package ui

// TokenField returns the element id of a field in the form for a new token, by the field names of pat.Refusal and
// "password", or "".
func TokenField(name string) string {
	return map[string]string{
		"name": "token-name", "days": "token-days", "permissions": "token-permissions", "password": "password-token",
	}[name]
}

// ProofField returns the element id of the password field in the row of a token or an application.
func ProofField(id string) string { return "password-" + id }

// AppField returns the element id of a field in the form for a new application, by the field names of client.Refusal
// and "password", or "".
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
