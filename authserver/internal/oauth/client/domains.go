package client

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Domains maps the places from which this deployment accepts client metadata documents to the connectorPlatform of
// their clients, or "" for a platform that has no name here. A place is a host (claude.ai), a path prefix on a host
// that ends with a slash (claude.ai/oauth/), or one document (claude.ai/oauth/client.json).
type Domains map[string]string

// OtherPlatform is the name of a platform without a connectorPlatform in settings, policies and logs.
const OtherPlatform = "other"

// ParseDomains parses place=platform pairs separated by commas; platform is claude, chatgpt or other. "none" means no
// domain.
func ParseDomains(text string) (Domains, error) {
	domains := Domains{}
	if text = strings.TrimSpace(text); text == "" || text == "none" {
		return domains, nil
	}
	for _, entry := range strings.Split(text, ",") {
		place, platform, ok := strings.Cut(strings.TrimSpace(entry), "=")
		switch {
		case !ok || !plainHost(place):
			return nil, errors.New(
				"a domain must look like claude.ai=claude or claude.ai/oauth/=claude, in lower case and without " +
					"https://",
			)
		case platform != OtherPlatform && !slices.Contains(platforms, platform):
			return nil, fmt.Errorf("a domain's platform must be %s or %s", strings.Join(platforms, ", "), OtherPlatform)
		}
		if _, twice := domains[place]; twice {
			return nil, errors.New("a domain appears twice")
		}
		domains[place] = ""
		if platform != OtherPlatform {
			domains[place] = platform
		}
	}
	return domains, nil
}

// plainHost reports whether place is a host, with an optional port and path, as it appears in the URL of a document.
func plainHost(place string) bool {
	name, path, hasPath := strings.Cut(place, "/")
	if strings.HasSuffix(name, ":") || strings.Contains(place, "//") ||
		(hasPath && (path == "" || strings.ContainsAny(path, "%*"))) {
		return false
	}
	_, ok := ParseAddress("https://" + name + "/" + path + "x")
	parsed, err := url.Parse("https://" + name)
	return ok && err == nil && parsed.Host == name && !strings.Contains(name, "*")
}

// Hosts returns the hosts of all places, without duplicates.
func (d Domains) Hosts() []string {
	var hosts []string
	for place := range d {
		if name, _, _ := strings.Cut(place, "/"); !slices.Contains(hosts, name) {
			hosts = append(hosts, name)
		}
	}
	return hosts
}

// Serve reports whether documents at address are accepted, and the platform of their client. A host must match exactly:
// a subdomain is another host. The longest matching place wins. A path prefix does not match an address with a percent
// sign, because servers differ in what an encoded slash means.
func (d Domains) Serve(address string) (platform string, ok bool) {
	host, ok := ParseAddress(address)
	if !ok {
		return "", false
	}
	rest, longest := strings.TrimPrefix(address, "https://"), -1
	for place, known := range d {
		below := strings.HasSuffix(place, "/") && strings.HasPrefix(rest, place) && !strings.Contains(rest, "%")
		if (place == host || place == rest || below) && len(place) > longest {
			platform, longest = known, len(place)
		}
	}
	return platform, longest >= 0
}
