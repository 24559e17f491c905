package client

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Domains are the places whose clients' documents this deployment reads, each with the connectorPlatform that a client
// of it counts as: "" for a platform that has no name here. A place is a host (claude.ai); all that is below a path of
// a host, which ends with a slash (claude.ai/oauth/); or one document (claude.ai/oauth/client.json).
type Domains map[string]string

// OtherPlatform is how a platform without a connectorPlatform of its own is called in settings, policies and logs.
const OtherPlatform = "other"

// ParseDomains reads place=platform, separated by commas; platform is claude, chatgpt or other. "none" is no domain at
// all.
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
				"a domain is written like claude.ai=claude or claude.ai/oauth/=claude, in lower case and without " +
					"https://",
			)
		case platform != OtherPlatform && !slices.Contains(platforms, platform):
			return nil, fmt.Errorf("a domain's platform is %s or %s", strings.Join(platforms, ", "), OtherPlatform)
		}
		if _, twice := domains[place]; twice {
			return nil, errors.New("a domain is named twice")
		}
		domains[place] = ""
		if platform != OtherPlatform {
			domains[place] = platform
		}
	}
	return domains, nil
}

// plainHost says whether place is a host, perhaps with a port and a path, as it stands in the address of a document.
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

// Hosts are the hosts of the places, each once.
func (d Domains) Hosts() []string {
	var hosts []string
	for place := range d {
		if name, _, _ := strings.Cut(place, "/"); !slices.Contains(hosts, name) {
			hosts = append(hosts, name)
		}
	}
	return hosts
}

// Serve says whether address is one of a document that is read here, and which platform its client counts as. A host
// must match exactly: a subdomain is another host. The longest place that holds the address counts. Below a path, an
// address with a percent sign is not served: servers differ in what an encoded slash means.
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
