package doctor

// Findings between the request and the callback: step authorize.

func ofAuthorizeEndpoints() map[string]diagnosis {
	return map[string]diagnosis{
		"authorize_ok": {
			verdict: OK,
			says: "The user is asked to sign in. A server may check the scope, the resource and other parameters " +
				"only afterwards.",
		},
		"authorize_307": {
			Warn,
			"The authorization endpoint returns 307 or 308.",
			"A browser would repeat a form at the next address.",
			"Redirect with 302 or 303.",
		},
		"authorize_refused": {
			Fail,
			"The authorization endpoint refuses the request with a page.",
			"The user sees that page, and {client} gets no response.",
			"If the page is about the client, check --client-id. If it is about the redirect URI, register " +
				"redirect_uri exactly, or pass the registered one with --redirect-uri.",
		},
		"port_not_registered": {
			Fail,
			"The authorization endpoint refuses the redirect URI of a registered client: its port is not registered.",
			"{client} uses another port each time, and redirect URIs of registered clients are compared exactly.",
			"Set a fixed port in {client}, in the setting above. Register the redirect URI with that port, and pass " +
				"it with --redirect-uri.",
		},
		"other_resource": {
			Fail,
			"The client is registered for another resource.",
			"{client} shows the error and stops.",
			"Register a connector with the resource that is typed into {client}, or type in the resource for which " +
				"this one is registered.",
		},
		"confidential_client": {
			Fail,
			"The token endpoint refuses a client that the authorization endpoint knows: the client has a secret.",
			"{client} is a public client. It sends no secret and gets no token.",
			"Register a connector for it, and pass its id with --client-id.",
		},
		"document_not_taken": {
			Fail,
			"The authorization endpoint does not accept the client that its metadata document describes.",
			"The user sees a page that says so, and {client} gets no response.",
			"Allow authserver to reach the document's host by https (DNS, outgoing firewall), list that host in " +
				"ALMONER_CLIENT_DOMAINS, and compare the redirect URI with those in the document. Without " +
				"access to the internet, test with a registered client: --client-id and --redirect-uri.",
		},
		"authorize_error": {
			Fail,
			"The request returns to the client with an error before the user signs in.",
			"{client} shows the error.",
			"The error identifies the parameter. The server must accept a scope with a leading space, " +
				"offline_access, prompt=consent and unknown parameters.",
		},
		"authorize_fails": {
			Fail,
			"The authorization endpoint fails (5xx).",
			"The user sees an error page.",
			"Check authserver's log at this time.",
		},
		"code_without_consent": {
			Fail,
			"A code was issued without sign-in or consent.",
			"Anyone gets access.",
			"Ask the user for consent each time before you issue a code.",
		},
	}
}

func ofConsents() map[string]diagnosis {
	return map[string]diagnosis{
		"password_not_sent": {
			Fail,
			"The password was not sent, because the sign-in page is not on the given server, or is not https.",
			"The doctor does not continue by itself.",
			"If that page is right, sign in yourself with --browser or --callback-stdin.",
		},
		"sign_in_failed": {
			Fail,
			"The sign-in was refused.",
			"The user does not reach the consent page.",
			"Check the e-mail address and the password. After many attempts, wait for 15 minutes.",
		},
		"consent_refused": {
			Fail,
			"A page with a refusal appears instead of the consent page.",
			"The user cannot connect {client}.",
			"Follow the page: membership, permissions, or the workspace's LLM integration.",
		},
		"page_not_understood": {
			Warn,
			"The doctor does not understand a page. It knows Almoner's sign-in with a password, and its consent page.",
			"The doctor cannot continue by itself.",
			"Sign in yourself with --browser or --callback-stdin.",
		},
		"page_fails": {
			Fail,
			"A page between the request and the callback fails.",
			"The user cannot continue.",
			"Check authserver's log at this time.",
		},
		"endless_pages": {
			Fail,
			"The pages and redirects do not end.",
			"The user cannot continue.",
			"Check for cookies that the browser does not send back: their Domain and Secure attributes, and the " +
				"scheme of the proxy.",
		},
		"led_elsewhere": {
			Fail,
			"The sign-in leads to another site.",
			"A browser may continue there. The doctor does not.",
			"Sign in yourself with --browser or --callback-stdin. If the site is wrong, check the redirect URI and " +
				"ALMONER_APP_URL.",
		},
		"workspace_not_chosen": {
			Fail,
			"The page offers a choice, and none of the options matches the given name.",
			"The doctor does not choose for you.",
			"Pass one of the options with --workspace.",
		},
		"form_action_ok": {
			verdict: OK,
			says:    "The pages allow the browser to continue to the callback, and wherever {client} leads it.",
		},
		"form_action": {
			Fail,
			"The Content-Security-Policy of a page before the callback has form-action.",
			"Chromium applies it to every redirect after the form. If {client} redirects from its callback to " +
				"another address, Chromium stays on the page, and nothing happens on screen.",
			"Remove form-action from the sign-in page, the consent page and the pages between them.",
		},
		"approval_redirects": {verdict: OK, says: "After Approve, the server redirects the browser with 302 or 303."},
		"approval_307": {
			Fail,
			"After Approve, the server redirects the browser with 307 or 308.",
			"The browser posts the consent page's form to {client}, which refuses it.",
			"Redirect with 303.",
		},
		"approval_301": {
			Warn,
			"After Approve, the server redirects the browser with a status other than 302 or 303.",
			"A browser may cache the redirect permanently.",
			"Redirect with 303.",
		},
	}
}

func ofCallbacks() map[string]diagnosis {
	return map[string]diagnosis{
		"callback_ok": {
			verdict: OK,
			says:    "The callback has a code, the state that was sent, and the correct issuer.",
		},
		"callback_unreadable": {
			Fail,
			"The callback's address is malformed.",
			"{client} does not understand the response.",
			"Encode the parameters as RFC 3986 requires.",
		},
		"callback_elsewhere": {
			Fail,
			"The browser was sent to an address other than the redirect URI.",
			"{client} gets no response.",
			"Paste the address at which the browser ended. The server must use redirect_uri exactly.",
		},
		"callback_twice": {
			Fail,
			"A parameter occurs twice in the callback.",
			"{client} refuses the response.",
			"Send each parameter once.",
		},
		"state_differs": {
			Fail,
			"state is not the value that was sent.",
			"{client} treats the response as a forgery.",
			"Return state unchanged.",
		},
		"iss_missing": {
			Fail,
			"iss is advertised, and missing in the callback.",
			"{client} assumes that another server sent the response.",
			"Send iss with each response, including errors, or do not advertise it.",
		},
		"iss_not_advertised": {
			Fail,
			"iss is in the callback, and was not advertised.",
			"Some clients refuse a parameter that was not advertised.",
			"Set authorization_response_iss_parameter_supported to true.",
		},
		"iss_differs": {
			Fail,
			"iss does not match the issuer exactly.",
			"{client} assumes that another server sent the response.",
			"Send the exact string of issuer in the metadata.",
		},
		"callback_error": {
			Fail,
			"The callback contains an error.",
			"{client} shows it and stops.",
			"The error shows the cause: access_denied means that the user refused, other errors are about the " +
				"request.",
		},
		"callback_without_code": {
			Fail,
			"The callback has neither code nor error.",
			"{client} does not know what happened.",
			"Send one of the two.",
		},
		"cannot_listen": {
			Fail,
			"The doctor cannot listen on the redirect URI's port.",
			"The browser could not connect.",
			"Stop the program that uses the port, or choose another port with --redirect-uri.",
		},
		"nobody_consented": {
			Fail,
			"The browser did not return in time.",
			"{client} also waits, and gives up.",
			"Try again. If the browser shows an error, read it.",
		},
	}
}
