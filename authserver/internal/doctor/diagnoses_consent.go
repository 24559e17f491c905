package doctor

// Findings between the request and the callback: step authorize.

func ofAuthorizeEndpoints() map[string]diagnosis {
	return map[string]diagnosis{
		"authorize_ok": {verdict: OK, says: "The request is taken, and the person is asked to sign in."},
		"authorize_307": {
			Warn,
			"The authorization endpoint answers with 307 or 308.",
			"A browser would repeat a form at the next address.",
			"Redirect with 302 or 303.",
		},
		"authorize_refused": {
			Fail,
			"The authorization endpoint refuses the request with a page.",
			"The person sees that page, and {client} hears nothing.",
			"If the page speaks of the client, compare --client-id; if of the address for the answer, register " +
				"redirect_uri byte for byte, or name the registered one with --redirect-uri.",
		},
		"document_not_taken": {
			Fail,
			"The authorization endpoint does not take the client that its metadata document describes.",
			"The person sees a page that says so, and {client} hears nothing.",
			"Let authserver reach the document's host by https (DNS, outgoing firewall), name that host in " +
				"ALMONER_CLIENT_DOMAINS, and compare the redirect URI with the document's.",
		},
		"authorize_error": {
			Fail,
			"The request comes back to the client with an error before anybody signs in.",
			"{client} shows the error.",
			"The error says which parameter; scope with a space in front, offline_access, prompt=consent and " +
				"unknown parameters have to be tolerated.",
		},
		"authorize_fails": {
			Fail,
			"The authorization endpoint fails (5xx).",
			"The person sees an error page.",
			"Look into authserver's log for this moment.",
		},
		"code_without_consent": {
			Fail,
			"A code was given out before anybody signed in or consented.",
			"Anybody gets in.",
			"Ask the person, each time, before a code is made.",
		},
	}
}

func ofConsents() map[string]diagnosis {
	return map[string]diagnosis{
		"password_not_sent": {
			Fail,
			"The password was not sent: the sign-in page does not belong to the server that was named, or is not " +
				"https.",
			"The doctor does not go on by itself.",
			"If that page is right, sign in yourself with --browser or --callback-stdin.",
		},
		"sign_in_failed": {
			Fail,
			"The sign-in was refused.",
			"Nobody gets to the consent page.",
			"Compare the e-mail address and the password; after many tries, wait for 15 minutes.",
		},
		"consent_refused": {
			Fail,
			"There is a page that says no instead of the consent page.",
			"The person cannot connect {client}.",
			"Do what the page says: membership, permissions, or the workspace's LLM integration.",
		},
		"page_not_understood": {
			Warn,
			"The doctor does not understand a page: it knows Almoner's sign-in with a password, and its consent.",
			"The doctor cannot go on by itself.",
			"Sign in yourself with --browser or --callback-stdin.",
		},
		"page_fails": {
			Fail,
			"A page between request and callback fails.",
			"The person is stuck there.",
			"Look into authserver's log for this moment.",
		},
		"endless_pages": {
			Fail,
			"There is no end of pages and redirects.",
			"The person is stuck there.",
			"Look at cookies that do not come back: their Domain, Secure, and the scheme that the proxy speaks.",
		},
		"led_elsewhere": {
			Fail,
			"The sign-in leads to another site.",
			"A browser may go on; the doctor does not.",
			"Sign in yourself with --browser or --callback-stdin; if the site is wrong, compare the redirect URI " +
				"and ALMONER_APP_URL.",
		},
		"workspace_not_chosen": {
			Fail,
			"The page asks for a choice, and none of the words given is offered.",
			"The doctor does not choose for you.",
			"Name one of those offered with --workspace.",
		},
		"form_action_ok": {verdict: OK, says: "The consent page lets the browser go on to the callback."},
		"form_action": {
			Fail, "form-action in the consent page's Content-Security-Policy does not name the callback.",
			"Chromium stops after Approve, and nothing happens on screen.", "Add the callback's origin to form-action.",
		},
		"approval_redirects": {verdict: OK, says: "After Approve, the browser is sent back with 302 or 303."},
		"approval_307": {
			Fail,
			"After Approve, the browser is sent back with 307 or 308.",
			"It posts the consent page's form to {client}, which refuses it.",
			"Redirect with 303.",
		},
		"approval_301": {
			Warn,
			"After Approve, the browser is sent back with another status than 302 or 303.",
			"A browser may keep that for ever.",
			"Redirect with 303.",
		},
	}
}

func ofCallbacks() map[string]diagnosis {
	return map[string]diagnosis{
		"callback_ok": {
			verdict: OK,
			says:    "The callback has a code, the state that was sent, and the right issuer.",
		},
		"callback_unreadable": {
			Fail,
			"The callback's address cannot be read.",
			"{client} does not understand the answer.",
			"Encode the parameters as RFC 3986 wants.",
		},
		"callback_elsewhere": {
			Fail,
			"The browser was sent to another address than the redirect URI.",
			"{client} gets no answer.",
			"Paste the address at which the browser ended; the server has to use redirect_uri byte for byte.",
		},
		"callback_twice": {
			Fail,
			"A parameter stands twice in the callback.",
			"{client} refuses the answer.",
			"Send each parameter once.",
		},
		"state_differs": {
			Fail,
			"state is not what was sent.",
			"{client} takes the answer for a forgery.",
			"Send state back byte for byte.",
		},
		"iss_missing": {
			Fail,
			"iss is advertised and missing in the callback.",
			"{client} takes the answer for another server's.",
			"Send iss with each answer, errors too, or do not advertise it.",
		},
		"iss_not_advertised": {
			Fail,
			"iss is in the callback and was not advertised.",
			"Some clients refuse what was not advertised.",
			"Set authorization_response_iss_parameter_supported to true.",
		},
		"iss_differs": {
			Fail,
			"iss is not the issuer, byte for byte.",
			"{client} takes the answer for another server's.",
			"Send the very string of the metadata's issuer.",
		},
		"callback_error": {
			Fail,
			"The callback brings an error.",
			"{client} shows it and stops.",
			"The error says what: access_denied is the person's own no, the others are about the request.",
		},
		"callback_without_code": {
			Fail,
			"The callback has neither code nor error.",
			"{client} does not know what happened.",
			"Send one of the two.",
		},
		"cannot_listen": {
			Fail,
			"The doctor cannot listen at the redirect URI's port.",
			"The browser would find nobody.",
			"End what listens there, or take another port with --redirect-uri.",
		},
		"nobody_consented": {
			Fail,
			"Nobody came back from the browser.",
			"{client} waits, too, and gives up.",
			"Try again; if the browser shows an error, read it.",
		},
	}
}
