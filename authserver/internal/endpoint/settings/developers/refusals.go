package developers

import (
	"slices"
	"strconv"

	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/shared/perm"
)

// whyNotRegistered returns the message for the form's user. The message of client.Refusal is for API clients and names
// JSON members.
func whyNotRegistered(r *client.Refusal, wish client.Registration) string {
	switch r.Field {
	case "redirectUris":
		return aboutAddresses(r, wish)
	case "requiredPermissions":
		return aboutPermissions(r, wish)
	case "connectorPlatform":
		return "Choose a platform."
	case "resource":
		return "Choose a resource."
	case "tokenEndpointAuthMethod":
		return "Choose an authentication method."
	}
	return r.Message
}

func aboutAddresses(r *client.Refusal, wish client.Registration) string {
	switch {
	case r.Nth > 0: // empty lines do not count
		return "Address " + strconv.Itoa(r.Nth) + " of " + strconv.Itoa(len(wish.Redirects)) + ": " + r.Message
	case len(wish.Redirects) == 1:
		return r.Message
	}
	return "Enter 1 to 20 redirect URIs, one per line."
}

func aboutPermissions(r *client.Refusal, wish client.Registration) string {
	notForConnectors := func(id string) bool {
		entry, known := perm.Describe(perm.Permission(id))
		return known && !entry.Connector
	}
	switch at := slices.IndexFunc(wish.Required, notForConnectors); {
	case len(wish.Required) == 0:
		return "Choose at least one permission."
	case at >= 0 && wish.Connector:
		entry, _ := perm.Describe(perm.Permission(wish.Required[at]))
		return "Connectors cannot have the permission “" + entry.Title + "”. Deselect it."
	}
	required := perm.FromStrings(wish.Required)
	if surplus := required.Without(required.Usable(wish.Resource)); wish.Connector && len(surplus) > 0 {
		entry, _ := perm.Describe(surplus[0])
		return wish.Resource + " does not use the permission “" + entry.Title +
			"”. Deselect it or choose another resource."
	}
	return r.Message
}
