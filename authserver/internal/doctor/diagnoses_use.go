package doctor

// Findings after the consent: steps token, call, refresh and clean up.

func ofTokenEndpoints() map[string]diagnosis {
	return map[string]diagnosis{
		"token_probe_ok": {
			verdict: OK,
			says:    "The token endpoint refuses a code that nobody issued, in OAuth's words.",
		},
		"token_redirects": {
			Fail,
			"The token endpoint redirects.",
			"{client} does not send a form again to another address.",
			"Answer at the very address that token_endpoint names.",
		},
		"token_no_oauth_error": {
			Fail,
			"The token endpoint's refusal is no OAuth error.",
			"{client} throws its tokens away and starts a new login, at every hiccup.",
			"Answer {\"error\": …} as JSON; see that no proxy or bot filter puts its own page in between.",
		},
		"token_unknown_client": {
			Fail,
			"The token endpoint does not know the client.",
			"{client} drops its registration.",
			"Compare --client-id; for a metadata document, look whether its domain is allowed and its server answers.",
		},
		"token_probe_status": {
			Fail,
			"The token endpoint answers a wrong code with another status than 400.",
			"{client} may keep trying, or start a new login.",
			"Answer 400, and 503 with temporarily_unavailable in an outage alone.",
		},
		"exchange_refused": {
			Fail,
			"The code was not exchanged.",
			"{client} says that the sign-in failed.",
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
		"token_ok": {verdict: OK, says: "The answer has all that a client needs."},
		"no_access_token": {
			Fail,
			"The answer is 200 and has no access_token.",
			"{client} says that the sign-in failed.",
			"Answer with access_token, as JSON.",
		},
		"token_type": {
			Fail,
			"token_type is not Bearer.",
			"{client} does not know how to use the token.",
			"Send \"token_type\": \"Bearer\".",
		},
		"no_expires_in": {
			Warn,
			"The answer has no expires_in.",
			"{client} does not refresh ahead of time and shows an error first.",
			"Send expires_in, in seconds.",
		},
		"no_refresh_token": {
			Fail,
			"The answer has no refresh_token.",
			"{client} goes silent when the access token ends, which users report as \"disconnected\".",
			"Issue a refresh token to this client, whether or not it asks for offline_access.",
		},
		"no_scope_told": {
			Warn,
			"The answer does not say which scope was granted.",
			"{client} believes that it got all it asked for.",
			"Send scope whenever it may be less than was asked.",
		},
		"token_cached": {
			Warn,
			"The answer has no Cache-Control: no-store.",
			"Something between may keep the tokens.",
			"Send Cache-Control: no-store (RFC 6749, section 5.1).",
		},
		"token_content_type": {
			Warn,
			"The answer is not served as application/json.",
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
			"{client} asks for consent again and again.",
			"Compare the token's aud with resource and its iss with the issuer (ALMONER_BASE_URL of both services), " +
				"the published keys, and both clocks.",
		},
		"call_forbidden": {
			Fail,
			"The API answers 403 to a good token.",
			"{client} shows an error that no new consent mends.",
			"Do what the message says: LLM integration, a permission, or the connector policy of the workspace.",
		},
		"call_fails": {
			Fail,
			"The API does not answer 200 to a call with a good token.",
			"{client} says that the server has a problem.",
			"Look into resourceapi's log for this moment.",
		},
		"not_mcp": {
			Fail,
			"The answer is no MCP response.",
			"{client} does not understand it.",
			"Type the URL of the MCP endpoint; see that the proxy changes no body and buffers no stream.",
		},
		"mcp_error": {
			Fail,
			"The call is answered with an error of JSON-RPC.",
			"{client} shows the error.",
			"The message says what; look into resourceapi's log for this moment.",
		},
		"notification_refused": {
			Warn, "notifications/initialized is refused.", "Some clients stop here.", "Answer 202 to notifications.",
		},
	}
}

func ofTools() map[string]diagnosis {
	return map[string]diagnosis{
		"tools_ok": {verdict: OK, says: "tools/list names the tools, with titles and hints."},
		"no_tools": {
			Warn,
			"tools/list is empty.",
			"{client} connects and can do nothing.",
			"Offer the tools that the token's permissions allow.",
		},
		"tools_without_hints": {
			Warn,
			"Some tools lack a title, readOnlyHint or destructiveHint.",
			"{client} asks its user before each call, or the directory refuses the connector.",
			"Give each tool a title and hints.",
		},
		"nothing_to_try": {
			Warn,
			"There is no read-only tool without arguments to try.",
			"The doctor calls none.",
			"Offer one, such as whoami.",
		},
		"workspace_told": {verdict: OK, says: "whoami says whose workspace this is."},
		"tool_ok":        {verdict: OK, says: "A read-only tool answers."},
		"tool_error": {
			Warn,
			"A read-only tool answers with an error.",
			"{client} shows that to its user.",
			"Do what the text says.",
		},
	}
}

func ofWrongTokens() map[string]diagnosis {
	return map[string]diagnosis{
		"wrong_token_ok": {
			verdict: OK,
			says:    "A token that nobody issued is refused with 401 and the challenge.",
		},
		"any_token_taken": {
			Fail,
			"A token that nobody issued is taken.",
			"Anybody gets in.",
			"Verify each token.",
		},
		"wrong_token_status": {
			Fail,
			"A token that is not good is answered with another status than 401.",
			"{client} never refreshes and goes silent after the first hour.",
			"Answer 401 to each token that is not valid.",
		},
		"wrong_token_no_challenge": {
			Fail,
			"The 401 for a wrong token lacks the challenge.",
			"{client} does not know where to sign in again.",
			"Send the same WWW-Authenticate with resource_metadata as at the first call.",
		},
		"wrong_token_no_error": {
			Warn,
			"The challenge for a wrong token does not say invalid_token.",
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
			"{client} goes silent when the access token ends.",
			"See above: issue one.",
		},
		"refresh_not_rotated": {
			Warn,
			"The refresh token was not replaced.",
			"A stolen one works unnoticed until the grant ends.",
			"Replace it at each refresh, as public clients need (OAuth 2.1, section 4.3.1).",
		},
		"new_token_ok": {verdict: OK, says: "The new access token works."},
		"new_token_refused": {
			Fail,
			"The new access token does not work.",
			"{client} shows \"disconnected\" after the first refresh.",
			"Compare aud and scope of the refreshed token with the first one's.",
		},
		"former_token_works": {verdict: OK, says: "The former access token goes on until it ends, as is usual."},
		"former_token_ended": {verdict: OK, says: "The former access token ended with the refresh."},
		"replay_ok":          {verdict: OK, says: "A used refresh token is refused, and ends the grant at once."},
		"replay_taken": {
			Fail,
			"A used refresh token is taken again.",
			"Whoever stole one shares the connection unnoticed.",
			"Refuse it and end the grant (RFC 9700, section 4.14.2).",
		},
		"replay_error": {
			Warn,
			"A used refresh token is refused with another error than invalid_grant.",
			"{client} may not understand that it has to ask for consent again.",
			"Answer invalid_grant.",
		},
		"replay_ends_nothing": {
			Fail,
			"The grant goes on after a used refresh token came again.",
			"Whoever stole the newest one keeps it.",
			"End the grant when a used refresh token comes (RFC 9700, section 4.14.2).",
		},
		"replay_leaves_access": {
			Warn,
			"The access token goes on after a used refresh token came again.",
			"Whoever stole it keeps it until it ends.",
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
			"The doctor's own connection is left behind.",
			"Disconnect it in Connected apps.",
		},
		"revocation_refused": {
			Warn,
			"The revocation was refused.",
			"The doctor's own connection may be left behind.",
			"Disconnect it in Connected apps.",
		},
		"revoked_token_works": {
			Fail,
			"The access token works after its grant was revoked.",
			"A connection that somebody cut goes on until the token ends.",
			"Look at the grant at each request.",
		},
		"signed_out": {verdict: OK, says: "The doctor has signed out."},
		"not_signed_out": {
			Warn,
			"The doctor could not sign out.",
			"Its session is left behind.",
			"End it in Settings, Security.",
		},
	}
}
