package session

import "strings"

// DeviceName returns the display name of a browser and its system. The User-Agent header is not proof of either.
func DeviceName(agent string) string {
	return named(agent, "A browser", [][2]string{
		{"Edg", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"},
		{"curl/", "curl"},
	}) + named(agent, "", [][2]string{
		{"Android", " on Android"}, {"iPhone", " on an iPhone"}, {"iPad", " on an iPad"}, {"Windows", " on Windows"},
		{"Mac OS X", " on a Mac"}, {"Linux", " on Linux"},
	})
}

func named(agent, otherwise string, names [][2]string) string {
	for _, name := range names {
		if strings.Contains(agent, name[0]) {
			return name[1]
		}
	}
	return otherwise
}
