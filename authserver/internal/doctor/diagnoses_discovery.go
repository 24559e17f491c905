package doctor

// Findings before the consent: steps reach, resource and server.

func ofNetworks() map[string]diagnosis {
	const couldNot = `{client} says that it could not reach the server.`
	return map[string]diagnosis{
		"no_such_name": {
			Fail,
			"The host's name is not known.",
			couldNot,
			"Publish a DNS record for the host, or correct the name in the URL.",
		},
		"connection_refused": {
			Fail,
			"Nothing listens at that host and port.",
			couldNot,
			"Start the server or its proxy, and compare the port.",
		},
		"unreachable": {
			Fail,
			"The host cannot be reached.",
			couldNot,
			"Look at the firewall and at the address that the name stands for.",
		},
		"bad_certificate": {
			Fail,
			"The TLS certificate is not good.",
			couldNot,
			"Install a certificate of a public authority for this name, with its intermediate certificates.",
		},
		"no_tls": {
			Fail,
			"The port does not speak TLS as clients do.",
			couldNot,
			"Let the proxy end TLS 1.2 or newer at this port, or correct the scheme of the URL.",
		},
		"too_slow": {
			Fail,
			"There was no whole answer in time: clients wait 10 s for documents, and 30 s for tokens.",
			"{client} gives up.",
			"Find out why the answer is slow: a store that does not answer, a proxy that waits, a process that starts.",
		},
		"too_large": {
			Fail,
			"The answer is larger than 256 KiB.",
			"{client} gives up reading.",
			"Answer with the document or the page alone; look whether another program answers at this address.",
		},
		"broken_answer": {
			Fail,
			"The answer cannot be read as HTTP.",
			couldNot,
			"Look at the proxy's log for this moment: it cut the connection, or speaks another protocol.",
		},
		"slow": {
			Warn,
			"The answer took longer than 3 s.",
			"{client} gives up after 10 s, so that some attempts fail.",
			"Find out why the answer is slow before it gets slower.",
		},
		"no_https": {
			Fail,
			"The URL is http, and not on this computer.",
			"{client} refuses it, and tokens would travel in the clear.",
			"Serve the API over https and set ALMONER_BASE_URL to that address.",
		},
		"not_on_the_internet": {
			Warn,
			"The URL is of a private network or this computer.",
			"{client} calls from its maker's servers and cannot reach it.",
			"This is good for a rehearsal; for real use, give the API a public name.",
		},
		"certificate_expires": {
			Warn,
			"The TLS certificate ends within 14 days.",
			"{client} cannot connect from that day on.",
			"Renew it, and look at why that did not happen by itself.",
		},
	}
}

func ofFirstCalls() map[string]diagnosis {
	const neverAsks = "Only 401 makes {client} begin the sign-in: it reports an error instead."
	return map[string]diagnosis{
		"refused_401": {verdict: OK, says: "The first call without a token is refused with 401."},
		"mcp_redirects": {
			Fail,
			"The MCP URL redirects.",
			"{client} does not send its call again to another address, or loses the token on the way.",
			"Type the address that Location names into the client, or serve the URL itself; a slash at the end is " +
				"often the cause.",
		},
		"challenge_on_200": {
			Fail,
			"The call without a token was answered 200, with a challenge.",
			"{client} ignores a challenge on 200 and never asks for consent.",
			"Answer 401 to every call without a token, initialize too.",
		},
		"open_to_all": {
			Fail,
			"The call without a token was answered as if it needed none.",
			"{client} connects without anybody's consent, so that anybody can.",
			"Require a token for every method, initialize too.",
		},
		"challenge_on_403": {
			Fail,
			"The call without a token was answered 403, with a challenge.",
			"{client} ignores a challenge on 403. " + neverAsks,
			"Answer 401 where there is no token; 403 is for one that may not do this.",
		},
		"refused_403": {
			Fail,
			"The call without a token was answered 403.",
			neverAsks,
			"Answer 401 with WWW-Authenticate. If a firewall or a bot filter in front answers, let the connectors' " +
				"servers pass.",
		},
		"nothing_there": {
			Fail,
			"There is nothing at the URL (404).",
			"{client} says that it found no MCP server.",
			"Correct the path (Almoner's is /mcp, without a slash at the end), or let the proxy pass it to " +
				"resourceapi.",
		},
		"no_post": {
			Fail,
			"The URL does not take POST (405).",
			"{client} cannot speak MCP there.",
			"Serve streamable HTTP at this URL, or type the URL that does.",
		},
		"rate_limited": {
			Fail,
			"The first call was answered 429.",
			"{client} gives up. All users of a hosted client share one range of addresses.",
			"Do not limit by address alone what carries no password.",
		},
		"server_fails": {
			Fail,
			"The server failed at the first call (5xx).",
			"{client} says that the server has a problem.",
			"Look into the log of the proxy and of resourceapi for this moment.",
		},
		"judged_before_401": {
			Fail, "The call without a token was refused with another status than 401.", neverAsks,
			"Look for a token before anything else about the request is judged.",
		},
	}
}

func ofChallenges() map[string]diagnosis {
	const guesses = "{client} has to guess where the metadata is, and some clients do not."
	return map[string]diagnosis{
		"challenge_ok": {verdict: OK, says: "The challenge names the metadata and the permissions."},
		"no_challenge": {
			Fail,
			"The 401 has no WWW-Authenticate: Bearer.",
			guesses,
			"Send WWW-Authenticate: Bearer resource_metadata=\"…\", scope=\"…\" with each 401, and let the proxy " +
				"pass it on.",
		},
		"no_resource_metadata": {
			Warn,
			"The challenge has no resource_metadata.",
			guesses,
			"Name the address of the protected resource's metadata in resource_metadata.",
		},
		"no_scope_in_challenge": {
			Warn,
			"The challenge has no scope.",
			"{client} asks for scopes_supported, or for nothing; some clients never ask for more later.",
			"Name the whole useful set of permissions in scope.",
		},
		"error_in_first_challenge": {
			Warn,
			"The challenge names an error, though no token was sent.",
			"{client} may throw away a token that is good.",
			"Leave error out where there was no token (RFC 6750, section 3.1).",
		},
		"offline_access_in_challenge": {
			Warn,
			"The challenge's scope names offline_access.",
			"{client} asks for it twice or reports a permission that was not granted.",
			"Name offline_access in scopes_supported of the authorization server alone.",
		},
		"cors_ok": {verdict: OK, says: "A client that runs in a browser can read the challenge."},
		"no_cors": {
			Warn,
			"The 401 has no Access-Control-Allow-Origin.",
			"A client that runs in a browser sees no answer at all. {client} itself is not affected if it calls " +
				"from a server.",
			"Answer with Access-Control-Allow-Origin.",
		},
		"challenge_not_exposed": {
			Warn,
			"The 401 does not expose WWW-Authenticate to browsers.",
			"A client that runs in a browser cannot read the challenge.",
			"Answer with Access-Control-Expose-Headers: WWW-Authenticate.",
		},
		"origin_refused": {
			Warn,
			"A call with the client's Origin is answered 403.",
			"{client} cannot connect from a browser.",
			"Add the origin to the list of those that the MCP endpoint takes, if such clients are wanted.",
		},
	}
}

func ofDocuments() map[string]diagnosis {
	return map[string]diagnosis{
		"document_redirects": {
			Fail,
			"A metadata address redirects.",
			"{client} does not follow, or ends with the metadata of another server.",
			"Answer 200 at this very address; look at the proxy's rules for slashes, www and https.",
		},
		"document_status": {
			Fail,
			"A metadata address answers neither 200 nor 404.",
			"{client} gives up instead of going on to the next place.",
			"Answer 200 with the document or 404; no credential and no bot filter belongs before metadata.",
		},
		"document_not_json": {
			Fail,
			"A metadata address answers 200 with what is no JSON object, perhaps a web page.",
			"{client} takes the place for the right one and fails to read it.",
			"Serve the document there, or 404; the proxy's fallback to a start page is often the cause.",
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
			"Answer with Access-Control-Allow-Origin: *; there is nothing secret in metadata.",
		},
		"not_an_address": {
			Fail,
			"An address that a client has to go to is not an absolute http or https URL.",
			"{client} stops here.",
			"Write the whole address, scheme and host included.",
		},
		"names_localhost": {
			Fail,
			"The server names localhost or a private address, though it was reached under a public name.",
			"{client} would look for the server on its own machine; the doctor does not follow, either.",
			"Set ALMONER_BASE_URL and ALMONER_APP_URL to the public addresses, for both services.",
		},
		"names_http": {
			Fail,
			"The server names an http address.",
			"{client} refuses it, and tokens would travel in the clear.",
			"Set ALMONER_BASE_URL and ALMONER_APP_URL to the https addresses, or let the server believe its proxy.",
		},
	}
}

func ofResources() map[string]diagnosis {
	return map[string]diagnosis{
		"resource_ok":             {verdict: OK, says: "The protected resource's metadata is as it has to be."},
		"resource_document_again": {verdict: OK, says: "Another place describes the same resource."},
		"challenge_leads_nowhere": {
			Fail,
			"There is nothing at the address that resource_metadata names.",
			"{client} stops here, or has to guess.",
			"Correct resource_metadata, or let the proxy pass /.well-known/oauth-protected-resource to resourceapi.",
		},
		"no_resource_document": {
			Fail,
			"There is no protected resource metadata at any place where {client} looks.",
			"{client} does not learn who gives access, and reports that the server does not implement OAuth.",
			"Serve /.well-known/oauth-protected-resource with the URL's path after it.",
		},
		"no_root_document": {
			Warn,
			"There is no document at /.well-known/oauth-protected-resource without the path.",
			"ChatGPT strips the path and looks there.",
			"Serve the same document there too.",
		},
		"resource_documents_differ": {
			Fail,
			"Two places describe different resources.",
			"Clients that look at different places ask for tokens that are refused.",
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
			"resource is not the URL that was typed, byte for byte.",
			"{client} refuses the document, or asks for a token that the API refuses.",
			"Type exactly what resource says into the client; if that is wrong, set ALMONER_BASE_URL.",
		},
		"no_authorization_servers": {
			Fail,
			"The document names no authorization server.",
			"{client} does not know where to go on.",
			"Set authorization_servers to the issuer.",
		},
		"several_authorization_servers": {
			Warn,
			"The document names several authorization servers.",
			"{client} uses the first one alone.",
			"Name one, or be sure that the first is the right one.",
		},
		"offline_access_in_resource": {
			Warn,
			"scopes_supported of the resource names offline_access.",
			"{client} shows or asks for a permission that is none.",
			"Name offline_access in the authorization server's document alone.",
		},
		"no_scopes_anywhere": {
			Warn,
			"Neither the challenge nor the document says which permissions there are.",
			"{client} asks for none and gets what the server takes for the default.",
			"Name them in the challenge's scope and in scopes_supported.",
		},
	}
}

func ofServers() map[string]diagnosis {
	return map[string]diagnosis{
		"server_ok": {verdict: OK, says: "The authorization server's metadata is as it has to be."},
		"no_server_document": {
			Fail,
			"There is no authorization server metadata at any place where {client} looks.",
			"{client} guesses /authorize and /token on the API's host.",
			"Let the proxy pass /.well-known/oauth-authorization-server and /.well-known/openid-configuration to " +
				"authserver.",
		},
		"no_issuer": {
			Fail,
			"The document has no issuer.",
			"{client} refuses the document.",
			"Set issuer to what authorization_servers names.",
		},
		"issuer_differs": {
			Fail,
			"issuer is not what the protected resource names, byte for byte.",
			"{client} refuses the document, for it may be another server's.",
			"Let both be the same string, without a slash at the end: ALMONER_BASE_URL of both services.",
		},
		"no_iss": {
			Warn,
			"authorization_response_iss_parameter_supported is not true.",
			"{client} cannot tell whose answer came back; newer clients are about to require it.",
			"Send iss with the callback and say so (RFC 9207).",
		},
		"no_iss_no_document": {
			Warn,
			"authorization_response_iss_parameter_supported is not true.",
			"{client} does not use its client id metadata document without it.",
			"Send iss with the callback and say so (RFC 9207), or register the client here.",
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
			"{client} refuses to begin: absent means that there is no PKCE.",
			"Add \"code_challenge_methods_supported\": [\"S256\"].",
		},
		"no_s256": {
			Fail,
			"code_challenge_methods_supported lacks S256.",
			"{client} refuses to begin.",
			"Add S256 to code_challenge_methods_supported.",
		},
		"no_public_clients": {
			Fail,
			"token_endpoint_auth_methods_supported lacks none.",
			"{client} has no secret and takes the server for one that wants one.",
			"Add none to token_endpoint_auth_methods_supported.",
		},
		"no_code": {
			Warn,
			"response_types_supported lacks code.",
			"Some clients refuse to begin.",
			"Add \"response_types_supported\": [\"code\"].",
		},
		"no_refresh": {
			Warn,
			"grant_types_supported lacks refresh_token.",
			"{client} may not refresh and goes silent when the first token ends.",
			"Add refresh_token to grant_types_supported.",
		},
		"no_offline_access": {
			Warn,
			"scopes_supported lacks offline_access.",
			"{client} does not ask for it, and some servers then give no refresh token.",
			"Add offline_access to scopes_supported.",
		},
		"scopes_disagree": {
			Warn,
			"The challenge names permissions that scopes_supported lacks.",
			"{client} may leave them out or refuse.",
			"Let both name the same permissions.",
		},
	}
}

func ofAliases() map[string]diagnosis {
	const missed = "Hosted clients go there when discovery misses."
	return map[string]diagnosis{
		"alias_ok": {verdict: OK, says: "Another place has the same metadata."},
		"alias_differs": {
			Fail,
			"Two places have different authorization server metadata.",
			"Which server {client} meets depends on where it looks first.",
			"Serve the same document at both, or 404 at one.",
		},
		"alias_missing": {
			Warn,
			"The authorization server metadata is not at the API's host with the path.",
			"{client} asks there as well.",
			"Let the proxy pass this address to authserver.",
		},
		"alias_strange": {
			Warn,
			"A place where some clients look has neither the document nor 404.",
			"A client that begins there fails.",
			"Serve the document there, or 404.",
		},
		"guess_authorize_ok": {verdict: OK, says: "/authorize on the API's origin leads to the consent page."},
		"guess_authorize": {
			Warn,
			"/authorize on the API's origin does not lead to the consent page.",
			missed,
			"Answer 302 to the authorization endpoint, query included.",
		},
		"guess_token_ok": {verdict: OK, says: "/token on the API's origin answers in OAuth's words."},
		"guess_token": {
			Warn,
			"/token on the API's origin is not the token endpoint.",
			missed,
			"Let the same handler answer there.",
		},
		"guess_token_redirects": {
			Warn,
			"/token on the API's origin redirects.",
			missed + " A form is not sent again after a redirect.",
			"Let the same handler answer there.",
		},
		"guess_register_ok": {
			verdict: OK,
			says:    "/register on the API's origin is 404, as there is no open registration.",
		},
		"guess_register": {
			Warn,
			"/register on the API's origin answers, though no registration is advertised.",
			"A hosted client that guesses takes that for a registration and fails later.",
			"Answer 404 there.",
		},
	}
}

func ofClients() map[string]diagnosis {
	return map[string]diagnosis{
		"registered_client": {verdict: OK, says: "The client goes by the client_id that was given."},
		"metadata_client": {
			verdict: OK,
			says:    "The server takes client id metadata documents: {client} needs no registration.",
		},
		"unknown_client": {
			Warn,
			"{client} has no client_id here: the server takes no metadata document of it.",
			"{client} asks its user for a client_id.",
			"Allow the client's domain (client_id_metadata_document_supported), or register it in Settings, " +
				"Developers, and pass its id with --client-id.",
		},
		"registration_ok": {verdict: OK, says: "The registration endpoint answers."},
		"registration_broken": {
			Fail,
			"registration_endpoint is advertised and does not take registrations.",
			"{client} tries to register there first and gives up.",
			"Leave registration_endpoint out of the metadata, or let it work without a credential.",
		},
	}
}
