package doctor

// Findings about the first call, without a token: step reach.

func ofNetworks() map[string]diagnosis {
	const couldNot = "{client} reports that it could not reach the server."
	return map[string]diagnosis{
		"no_such_name": {
			Fail,
			"The host name does not resolve.",
			couldNot,
			"Publish a DNS record for the host, or correct the name in the URL.",
		},
		"connection_refused": {
			Fail,
			"Nothing listens on that host and port.",
			couldNot,
			"Start the server or its proxy, and check the port.",
		},
		"unreachable": {
			Fail,
			"The host cannot be reached.",
			couldNot,
			"Check the firewall and the address that the name resolves to.",
		},
		"bad_certificate": {
			Fail,
			"The TLS certificate is not valid.",
			couldNot,
			"Install a certificate of a public authority for this name, with its intermediate certificates.",
		},
		"no_tls": {
			Fail,
			"The port does not accept the client's TLS.",
			couldNot,
			"Configure the proxy to terminate TLS 1.2 or newer on this port, or correct the scheme of the URL.",
		},
		"too_slow": {
			Fail,
			"No complete response arrived in time. Clients wait 10 s for documents, and 30 s for tokens.",
			"{client} gives up.",
			"Find out why the response is slow: an unavailable store, a waiting proxy, or a process that is starting.",
		},
		"too_large": {
			Fail,
			"The response is larger than 256 KiB.",
			"{client} stops reading.",
			"Return only the document or the page. Check whether another program responds at this address.",
		},
		"broken_answer": {
			Fail,
			"The response is not valid HTTP.",
			couldNot,
			"Check the proxy's log at this time: it closed the connection, or uses another protocol.",
		},
		"slow": {
			Warn,
			"The response took longer than 3 s.",
			"{client} gives up after 10 s, so some attempts fail.",
			"Find out why the response is slow before it gets slower.",
		},
		"no_https": {
			Fail,
			"The URL is http, and not on this computer.",
			"{client} refuses it, and tokens would be sent unencrypted.",
			"Serve the API over https and set ALMONER_BASE_URL to that address.",
		},
		"not_on_the_internet": {
			Warn,
			"The URL is on a private network or on this computer.",
			"{client} calls from its vendor's servers and cannot reach it.",
			"This is fine for a test. For production, give the API a public name.",
		},
		"certificate_expires": {
			Warn,
			"The TLS certificate expires within 14 days.",
			"{client} cannot connect after that.",
			"Renew it, and find out why it was not renewed automatically.",
		},
	}
}

func ofFirstCalls() map[string]diagnosis {
	const neverAsks = "{client} starts the sign-in only on 401. It reports an error instead."
	return map[string]diagnosis{
		"refused_401": {verdict: OK, says: "The first call without a token is refused with 401."},
		"mcp_redirects": {
			Fail,
			"The MCP URL redirects.",
			"{client} does not repeat its call at another address, or loses the token on the way.",
			"Enter the address in Location into the client, or serve the URL itself. A trailing slash is often the " +
				"cause.",
		},
		"challenge_on_200": {
			Fail,
			"The call without a token returned 200, with a challenge.",
			"{client} ignores a challenge on 200 and never asks for consent.",
			"Return 401 for every call without a token, including initialize.",
		},
		"open_to_all": {
			Fail,
			"The call without a token succeeded.",
			"{client} connects without consent, so anyone can connect.",
			"Require a token for every method, including initialize.",
		},
		"challenge_on_403": {
			Fail,
			"The call without a token returned 403, with a challenge.",
			"{client} ignores a challenge on 403. " + neverAsks,
			"Return 401 if there is no token. 403 is for a token without permission.",
		},
		"refused_403": {
			Fail,
			"The call without a token returned 403.",
			neverAsks,
			"Return 401 with WWW-Authenticate. If a firewall or a bot filter responds, allow the connectors' servers.",
		},
		"nothing_there": {
			Fail,
			"There is nothing at the URL (404).",
			"{client} reports that it found no MCP server.",
			"Correct the path (Almoner's is /mcp, without a trailing slash), or configure the proxy to forward it " +
				"to resourceapi.",
		},
		"no_post": {
			Fail,
			"The URL does not accept POST (405).",
			"{client} cannot use MCP there.",
			"Serve streamable HTTP at this URL, or enter the URL that does.",
		},
		"rate_limited": {
			Fail,
			"The first call returned 429.",
			"{client} gives up. All users of a hosted client share one range of addresses.",
			"Do not limit requests without a password by address only.",
		},
		"server_fails": {
			Fail,
			"The server failed at the first call (5xx).",
			"{client} reports that the server has a problem.",
			"Check the logs of the proxy and of resourceapi at this time.",
		},
		"judged_before_401": {
			Fail,
			"The call without a token was refused with a status other than 401.",
			neverAsks,
			"Check for a token before any other part of the request.",
		},
	}
}

func ofChallenges() map[string]diagnosis {
	const guesses = "{client} has to guess where the metadata is, and some clients do not."
	return map[string]diagnosis{
		"challenge_ok": {verdict: OK, says: "The challenge contains the metadata address and the permissions."},
		"no_challenge": {
			Fail,
			"The 401 has no WWW-Authenticate: Bearer.",
			guesses,
			"Send WWW-Authenticate: Bearer resource_metadata=\"…\", scope=\"…\" with each 401, and configure the " +
				"proxy to forward it.",
		},
		"no_resource_metadata": {
			Warn,
			"The challenge has no resource_metadata.",
			guesses,
			"Set resource_metadata to the address of the protected resource's metadata.",
		},
		"no_scope_in_challenge": {
			Warn,
			"The challenge has no scope.",
			"{client} requests scopes_supported, or nothing. Some clients never request more later.",
			"Set scope to all useful permissions.",
		},
		"error_in_first_challenge": {
			Warn,
			"The challenge contains an error, although no token was sent.",
			"{client} may discard a valid token.",
			"Omit error if there was no token (RFC 6750, section 3.1).",
		},
		"offline_access_in_challenge": {
			Warn,
			"The challenge's scope contains offline_access.",
			"{client} requests it twice or reports a permission that was not granted.",
			"List offline_access only in scopes_supported of the authorization server.",
		},
		"cors_ok": {verdict: OK, says: "A client that runs in a browser can read the challenge."},
		"no_cors": {
			Warn,
			"The 401 has no Access-Control-Allow-Origin.",
			"A client that runs in a browser sees no response. {client} itself is not affected if it calls from a " +
				"server.",
			"Send Access-Control-Allow-Origin.",
		},
		"challenge_not_exposed": {
			Warn,
			"The 401 does not expose WWW-Authenticate to browsers.",
			"A client that runs in a browser cannot read the challenge.",
			"Send Access-Control-Expose-Headers: WWW-Authenticate.",
		},
		"origin_refused": {
			Warn,
			"A call with the client's Origin returns 403.",
			"{client} cannot connect from a browser.",
			"Add the origin to those that the MCP endpoint accepts, if you want to allow such clients.",
		},
	}
}
