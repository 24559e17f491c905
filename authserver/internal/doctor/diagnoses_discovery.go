package doctor

// Findings about metadata and discovery: steps resource and server.

func ofDocuments() map[string]diagnosis {
	return map[string]diagnosis{
		"document_redirects": {
			Fail,
			"A metadata address redirects.",
			"{client} does not follow it, or reads the metadata of another server.",
			"Return 200 at this address. Check the proxy's rules for slashes, www and https.",
		},
		"document_status": {
			Fail,
			"A metadata address returns neither 200 nor 404.",
			"{client} gives up instead of trying the next address.",
			"Return 200 with the document, or 404. Metadata must not require a credential or pass a bot filter.",
		},
		"document_not_json": {
			Fail,
			"A metadata address returns 200 with something other than a JSON object, perhaps a web page.",
			"{client} expects the document there and fails to read it.",
			"Serve the document there, or 404. The proxy's fallback to a start page is often the cause.",
		},
		"document_content_type": {
			Warn,
			"The metadata is not served as application/json.",
			"Some clients refuse to read it.",
			"Send Content-Type: application/json.",
		},
		"document_no_cors": {
			Warn,
			"The metadata has no Access-Control-Allow-Origin.",
			"A client that runs in a browser cannot read it.",
			"Send Access-Control-Allow-Origin: *. Metadata contains no secrets.",
		},
		"not_an_address": {
			Fail,
			"An address that the client needs is not an absolute http or https URL.",
			"{client} stops here.",
			"Use the complete URL, including scheme and host.",
		},
		"names_localhost": {
			Fail,
			"The server advertises localhost or a private address, although it was reached by a public name.",
			"{client} would look for the server on its own machine. The doctor does not continue there either.",
			"Set ALMONER_BASE_URL and ALMONER_APP_URL to the public addresses, for both services.",
		},
		"names_http": {
			Fail,
			"The server advertises an http address.",
			"{client} refuses it, and tokens would be sent unencrypted.",
			"Set ALMONER_BASE_URL and ALMONER_APP_URL to the https addresses, or configure the server to trust its " +
				"proxy.",
		},
	}
}

func ofResources() map[string]diagnosis {
	return map[string]diagnosis{
		"resource_ok":             {verdict: OK, says: "The protected resource's metadata is correct."},
		"resource_document_again": {verdict: OK, says: "Another address describes the same resource."},
		"challenge_leads_nowhere": {
			Fail,
			"There is nothing at the address in resource_metadata.",
			"{client} stops here, or has to guess.",
			"Correct resource_metadata, or configure the proxy to forward /.well-known/oauth-protected-resource to " +
				"resourceapi.",
		},
		"no_resource_document": {
			Fail,
			"There is no protected resource metadata at any address where {client} looks.",
			"{client} cannot find the authorization server, and reports that the server does not implement OAuth.",
			"Serve /.well-known/oauth-protected-resource followed by the URL's path.",
		},
		"no_root_document": {
			Warn,
			"There is no document at /.well-known/oauth-protected-resource without the path.",
			"ChatGPT removes the path and looks there.",
			"Serve the same document there too.",
		},
		"resource_documents_differ": {
			Fail,
			"Two addresses describe different resources.",
			"Clients that look at different addresses request tokens that are refused.",
			"Serve the same document at both.",
		},
		"no_resource": {
			Fail,
			"The document has no resource.",
			"{client} refuses the document.",
			"Set resource to the URL of the MCP endpoint.",
		},
		"resource_differs": {
			Fail,
			"resource does not match the entered URL exactly.",
			"{client} refuses the document, or requests a token that the API refuses.",
			"Enter exactly the value of resource into the client. If that value is wrong, set ALMONER_BASE_URL.",
		},
		"no_authorization_servers": {
			Fail,
			"The document lists no authorization server.",
			"{client} does not know where to continue.",
			"Set authorization_servers to the issuer.",
		},
		"several_authorization_servers": {
			Warn,
			"The document lists several authorization servers.",
			"{client} uses only the first one.",
			"List one, or check that the first is the right one.",
		},
		"offline_access_in_resource": {
			Warn,
			"scopes_supported of the resource contains offline_access.",
			"{client} shows or requests it as a permission, which it is not.",
			"List offline_access only in the authorization server's document.",
		},
		"no_scopes_anywhere": {
			Warn,
			"Neither the challenge nor the document lists the permissions.",
			"{client} requests none and gets the server's default.",
			"List them in the challenge's scope and in scopes_supported.",
		},
	}
}

func ofServers() map[string]diagnosis {
	return map[string]diagnosis{
		"server_ok": {verdict: OK, says: "The authorization server's metadata is correct."},
		"no_server_document": {
			Fail,
			"There is no authorization server metadata at any address where {client} looks.",
			"{client} guesses /authorize and /token on the API's host.",
			"Configure the proxy to forward /.well-known/oauth-authorization-server and " +
				"/.well-known/openid-configuration to authserver.",
		},
		"no_issuer": {
			Fail,
			"The document has no issuer.",
			"{client} refuses the document.",
			"Set issuer to the value in authorization_servers.",
		},
		"issuer_differs": {
			Fail,
			"issuer does not match the issuer in the protected resource's metadata exactly.",
			"{client} refuses the document, because it may belong to another server.",
			"Use the same string in both, without a trailing slash: ALMONER_BASE_URL of both services.",
		},
		"no_iss": {
			Warn,
			"authorization_response_iss_parameter_supported is not true.",
			"{client} cannot tell which server sent a response. Newer clients will require it.",
			"Send iss with the callback and advertise it (RFC 9207).",
		},
		"no_iss_no_document": {
			Warn,
			"authorization_response_iss_parameter_supported is not true.",
			"{client} does not use its client metadata document without it.",
			"Send iss with the callback and advertise it (RFC 9207), or register the client here.",
		},
		"no_authorization_endpoint": {
			Fail,
			"The document has no authorization_endpoint.",
			"{client} cannot ask for consent.",
			"Set authorization_endpoint to the consent page.",
		},
		"no_token_endpoint": {
			Fail,
			"The document has no token_endpoint.",
			"{client} cannot exchange the code.",
			"Set token_endpoint.",
		},
		"no_pkce": {
			Fail,
			"The document has no code_challenge_methods_supported.",
			"{client} refuses to start, because this means that PKCE is not supported.",
			"Add \"code_challenge_methods_supported\": [\"S256\"].",
		},
		"no_s256": {
			Fail,
			"code_challenge_methods_supported lacks S256.",
			"{client} refuses to start.",
			"Add S256 to code_challenge_methods_supported.",
		},
		"no_public_clients": {
			Fail,
			"token_endpoint_auth_methods_supported lacks none.",
			"{client} has no secret, and concludes that the server requires one.",
			"Add none to token_endpoint_auth_methods_supported.",
		},
		"no_code": {
			Warn,
			"response_types_supported lacks code.",
			"Some clients refuse to start.",
			"Add \"response_types_supported\": [\"code\"].",
		},
		"no_refresh": {
			Warn,
			"grant_types_supported lacks refresh_token.",
			"{client} may not refresh, and stops working when the first token expires.",
			"Add refresh_token to grant_types_supported.",
		},
		"no_offline_access": {
			Warn,
			"scopes_supported lacks offline_access.",
			"{client} does not request it, and some servers then issue no refresh token.",
			"Add offline_access to scopes_supported.",
		},
		"scopes_disagree": {
			Warn,
			"The challenge lists permissions that scopes_supported lacks.",
			"{client} may omit them or refuse.",
			"List the same permissions in both.",
		},
	}
}

func ofAliases() map[string]diagnosis {
	const missed = "Hosted clients use this address if discovery fails."
	return map[string]diagnosis{
		"alias_ok": {verdict: OK, says: "Another address has the same metadata."},
		"alias_differs": {
			Fail,
			"Two addresses have different authorization server metadata.",
			"Which server {client} uses depends on where it looks first.",
			"Serve the same document at both, or 404 at one.",
		},
		"alias_missing": {
			Warn,
			"The authorization server metadata is not on the API's host with the path.",
			"{client} also looks there.",
			"Configure the proxy to forward this address to authserver.",
		},
		"alias_strange": {
			Warn,
			"An address where some clients look returns neither the document nor 404.",
			"A client that starts there fails.",
			"Serve the document there, or 404.",
		},
		"guess_authorize_ok": {verdict: OK, says: "/authorize on the API's origin redirects to the consent page."},
		"guess_authorize": {
			Warn,
			"/authorize on the API's origin does not redirect to the consent page.",
			missed,
			"Return 302 to the authorization endpoint, including the query.",
		},
		"guess_token_ok": {verdict: OK, says: "/token on the API's origin returns OAuth responses."},
		"guess_token": {
			Warn,
			"/token on the API's origin is not the token endpoint.",
			missed,
			"Serve the token endpoint there too.",
		},
		"guess_token_redirects": {
			Warn,
			"/token on the API's origin redirects.",
			missed + " A form is not sent again after a redirect.",
			"Serve the token endpoint there too.",
		},
		"guess_register_ok": {
			verdict: OK,
			says:    "/register on the API's origin is 404, because there is no open registration.",
		},
		"guess_register": {
			Warn,
			"/register on the API's origin responds, although no registration is advertised.",
			"A hosted client that guesses this address assumes that it has registered, and fails later.",
			"Return 404 there.",
		},
	}
}

func ofClients() map[string]diagnosis {
	return map[string]diagnosis{
		"registered_client": {verdict: OK, says: "The client uses the given client_id."},
		"metadata_client": {
			verdict: OK,
			says:    "The server accepts client metadata documents. {client} needs no registration.",
		},
		"needs_registration": {
			Fail,
			"{client} has no client_id here. It uses dynamic client registration, which this server does not support.",
			"{client} stops before it opens a browser. It says that the server does not support dynamic client " +
				"registration.",
			"Register a connector with {client}'s redirect URI in Settings, Developers. Enter its client_id in the " +
				"client's setting that is named above, and pass it with --client-id.",
		},
		"no_client_id": {
			Warn,
			"{client} has no client_id: none was given, and it has no metadata document.",
			"{client} asks its user for a client_id.",
			"Register a connector in Settings, Developers, and pass its id with --client-id.",
		},
		"unknown_client": {
			Warn,
			"{client} has no client_id here: the server does not accept its metadata document.",
			"{client} asks its user for a client_id.",
			"Allow the client's domain (client_id_metadata_document_supported), or register it in Settings, " +
				"Developers, and pass its id with --client-id.",
		},
		"registration_ok": {verdict: OK, says: "The registration endpoint responds."},
		"registration_broken": {
			Fail,
			"registration_endpoint is advertised and does not accept registrations.",
			"{client} tries to register there first and gives up.",
			"Remove registration_endpoint from the metadata, or accept registrations without a credential.",
		},
	}
}
