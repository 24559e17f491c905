package doctor

// Findings after the consent: steps token, call, refresh and clean up.

func ofTokenEndpoints() map[string]diagnosis {
	return map[string]diagnosis{
		"token_probe_ok": {verdict: OK, says: "The token endpoint refuses an unknown code with an OAuth error."},
		"token_redirects": {
			Fail,
			"The token endpoint redirects.",
			"{client} does not send a form again to another address.",
			"Serve the endpoint at the exact address in token_endpoint.",
		},
		"token_no_oauth_error": {
			Fail,
			"The token endpoint's refusal is not an OAuth error.",
			"{client} discards its tokens and starts a new sign-in after every failure.",
			"Return {\"error\": …} as JSON. Check that no proxy or bot filter returns its own page.",
		},
		"token_unknown_client": {
			Fail,
			"The token endpoint does not know the client.",
			"{client} discards its registration.",
			"Check --client-id: a client with a secret is refused too. For a metadata document, check that its " +
				"domain is allowed and its server responds.",
		},
		"token_probe_status": {
			Fail,
			"The token endpoint refuses an unknown code with a status other than 400.",
			"{client} may keep retrying, or start a new sign-in.",
			"Return 400. Return 503 with temporarily_unavailable only in an outage.",
		},
		"exchange_refused": {
			Fail,
			"The code was not exchanged.",
			"{client} reports that the sign-in failed.",
			"invalid_grant: redirect_uri or the verifier, or it took longer than a minute; invalid_target: " +
				"resource; invalid_client: the client.",
		},
		"refresh_refused": {
			Fail,
			"The refresh was refused.",
			"{client} shows \"disconnected\" within the hour.",
			"invalid_grant: membership, LLM integration or the grant's end; invalid_client: a registration that was " +
				"deleted.",
		},
	}
}

func ofTokens() map[string]diagnosis {
	return map[string]diagnosis{
		"token_ok": {verdict: OK, says: "The response has everything that a client needs."},
		"no_access_token": {
			Fail,
			"The response is 200 and has no access_token.",
			"{client} reports that the sign-in failed.",
			"Return access_token, as JSON.",
		},
		"token_type": {
			Fail,
			"token_type is not Bearer.",
			"{client} does not know how to use the token.",
			"Send \"token_type\": \"Bearer\".",
		},
		"no_expires_in": {
			Warn,
			"The response has no expires_in.",
			"{client} does not refresh ahead of time, and shows an error first.",
			"Send expires_in, in seconds.",
		},
		"no_refresh_token": {
			Fail,
			"The response has no refresh_token.",
			"{client} stops working when the access token expires, which users report as \"disconnected\".",
			"Issue a refresh token to this client, whether or not it requests offline_access.",
		},
		"no_scope_told": {
			Warn,
			"The response does not contain the granted scope.",
			"{client} assumes that it got everything that it requested.",
			"Send scope whenever it may be less than requested.",
		},
		"token_cached": {
			Warn,
			"The response has no Cache-Control: no-store.",
			"A proxy may cache the tokens.",
			"Send Cache-Control: no-store (RFC 6749, section 5.1).",
		},
		"token_content_type": {
			Warn,
			"The response is not served as application/json.",
			"Some clients do not read it.",
			"Send Content-Type: application/json.",
		},
	}
}

func ofCalls() map[string]diagnosis {
	return map[string]diagnosis{
		"initialize_ok": {verdict: OK, says: "initialize works with the token."},
		"own_token_refused": {
			Fail,
			"The API refuses the token that the authorization server has just issued (401).",
			"{client} asks for consent repeatedly.",
			"Compare the token's aud with resource and its iss with the issuer (ALMONER_BASE_URL of both services), " +
				"and check the published keys and both clocks.",
		},
		"call_forbidden": {
			Fail,
			"The API returns 403 for a valid token.",
			"{client} shows an error that a new consent does not fix.",
			"Follow the message: LLM integration, a permission, or the connector policy of the workspace.",
		},
		"call_fails": {
			Fail,
			"The API does not return 200 for a call with a valid token.",
			"{client} reports that the server has a problem.",
			"Check resourceapi's log at this time.",
		},
		"not_mcp": {
			Fail,
			"The response is not an MCP response.",
			"{client} does not understand it.",
			"Enter the URL of the MCP endpoint. Check that the proxy changes no body and buffers no stream.",
		},
		"mcp_error": {
			Fail,
			"The call returns a JSON-RPC error.",
			"{client} shows the error.",
			"The message shows the cause. Check resourceapi's log at this time.",
		},
		"notification_refused": {
			Warn,
			"notifications/initialized is refused.",
			"Some clients stop here.",
			"Return 202 for notifications.",
		},
	}
}

func ofTools() map[string]diagnosis {
	return map[string]diagnosis{
		"tools_ok": {verdict: OK, says: "tools/list returns the tools, with titles and hints."},
		"no_tools": {
			Warn,
			"tools/list is empty.",
			"{client} connects and can do nothing.",
			"Offer the tools that the token's permissions allow.",
		},
		"tools_without_hints": {
			Warn,
			"Some tools lack a title, readOnlyHint or destructiveHint.",
			"{client} asks its user before each call, or the directory rejects the connector.",
			"Give each tool a title and hints.",
		},
		"nothing_to_try": {
			Warn,
			"There is no read-only tool without arguments to try.",
			"The doctor calls none.",
			"Offer one, such as whoami.",
		},
		"workspace_told": {verdict: OK, says: "whoami returns the workspace."},
		"tool_ok":        {verdict: OK, says: "A read-only tool responds."},
		"tool_error": {
			Warn,
			"A read-only tool returns an error.",
			"{client} shows it to its user.",
			"Follow the text of the error.",
		},
	}
}

func ofWrongTokens() map[string]diagnosis {
	return map[string]diagnosis{
		"wrong_token_ok": {verdict: OK, says: "An unknown token is refused with 401 and the challenge."},
		"any_token_taken": {
			Fail,
			"An unknown token is accepted.",
			"Anyone gets access.",
			"Verify each token.",
		},
		"wrong_token_status": {
			Fail,
			"An invalid token is refused with a status other than 401.",
			"{client} never refreshes, and stops working after the first hour.",
			"Return 401 for each invalid token.",
		},
		"wrong_token_no_challenge": {
			Fail,
			"The 401 for an invalid token lacks the challenge.",
			"{client} does not know where to sign in again.",
			"Send the same WWW-Authenticate with resource_metadata as for the first call.",
		},
		"wrong_token_no_error": {
			Warn,
			"The challenge for an invalid token does not contain invalid_token.",
			"Some clients do not refresh.",
			"Add error=\"invalid_token\" (RFC 6750, section 3.1).",
		},
	}
}

func ofRefreshes() map[string]diagnosis {
	return map[string]diagnosis{
		"refresh_ok": {verdict: OK, says: "The refresh token was replaced."},
		"nothing_to_refresh": {
			Warn,
			"There is no refresh token to try.",
			"{client} stops working when the access token expires.",
			"Issue a refresh token, as described above.",
		},
		"refresh_not_rotated": {
			Warn,
			"The refresh token was not replaced.",
			"A stolen one works unnoticed until the grant ends.",
			"Replace it at each refresh, as public clients need (OAuth 2.1, section 4.3.1).",
		},
		"repeat_ok": {
			verdict: OK,
			says:    "After a lost response, a refresh can be repeated with the same Idempotency-Key.",
		},
		"repeat_refused": {
			Fail,
			"A refresh repeated with the same Idempotency-Key is refused, although the metadata offers it.",
			"{client} loses the connection if a response is lost.",
			"Return the same refresh token, or omit token_endpoint_idempotency_key_supported.",
		},
		"repeat_other_token": {
			Fail,
			"A refresh repeated with the same Idempotency-Key gets a different refresh token.",
			"One of the two tokens is superseded, and {client} cannot know which.",
			"Return the same refresh token.",
		},
		"new_token_ok": {verdict: OK, says: "The new access token works."},
		"new_token_refused": {
			Fail,
			"The new access token does not work.",
			"{client} shows \"disconnected\" after the first refresh.",
			"Compare aud and scope of the new token with those of the first one.",
		},
		"former_token_works": {verdict: OK, says: "The previous access token works until it expires, as usual."},
		"former_token_ended": {verdict: OK, says: "The previous access token ended with the refresh."},
		"replay_ok":          {verdict: OK, says: "A used refresh token is refused, and its grant ends immediately."},
		"replay_taken": {
			Fail,
			"A used refresh token is accepted again.",
			"A thief can use a stolen one unnoticed.",
			"Refuse it and end the grant (RFC 9700, section 4.14.2).",
		},
		"replay_error": {
			Warn,
			"A used refresh token is refused with an error other than invalid_grant.",
			"{client} may not understand that it has to ask for consent again.",
			"Return invalid_grant.",
		},
		"replay_ends_nothing": {
			Fail,
			"The grant remains active after a used refresh token was presented again.",
			"A thief keeps access with the newest one.",
			"End the grant when a used refresh token is presented (RFC 9700, section 4.14.2).",
		},
		"replay_leaves_access": {
			Warn,
			"The access token works after a used refresh token was presented again.",
			"A thief keeps access until it expires.",
			"End the access tokens of the grant with it.",
		},
	}
}

func ofCleanUps() map[string]diagnosis {
	return map[string]diagnosis{
		"revoked": {verdict: OK, says: "The doctor's own connection is revoked."},
		"no_revocation": {
			Warn,
			"There is no revocation_endpoint.",
			"The doctor's own connection remains.",
			"Disconnect it in Connected apps.",
		},
		"revocation_refused": {
			Warn,
			"The revocation was refused.",
			"The doctor's own connection may remain.",
			"Disconnect it in Connected apps.",
		},
		"revoked_token_works": {
			Fail,
			"The access token works after its grant was revoked.",
			"A disconnected client keeps access until the token expires.",
			"Check the grant at each request.",
		},
		"signed_out": {verdict: OK, says: "The doctor has signed out."},
		"not_signed_out": {
			Warn,
			"The doctor could not sign out.",
			"Its session remains.",
			"End it in Settings, Security.",
		},
	}
}
