package client

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Domains are the hosts whose clients' documents this deployment reads, each with the connectorPlatform that a client of it counts
// as: "" for a platform that has no name here.
type Domains map[string]string

// OtherPlatform is how a platform without a connectorPlatform of its own is called in settings, policies and logs.
const OtherPlatform = "other"

// ParseDomains reads host=platform, separated by commas; platform is claude, chatgpt or other. "none" is no domain at all.
func ParseDomains(text string) (Domains, error) {
	domains := Domains{}
	if text = strings.TrimSpace(text); text == "" || text == "none" {
		return domains, nil
	}
	for _, entry := range strings.Split(text, ",") {
		host, platform, ok := strings.Cut(strings.TrimSpace(entry), "=")
		switch {
		case !ok || !plainHost(host):
			return nil, errors.New("a domain is written like claude.ai=claude, in lower case and without https://")
		case platform != OtherPlatform && !slices.Contains(platforms, platform):
			return nil, fmt.Errorf("a domain's platform is %s or %s", strings.Join(platforms, ", "), OtherPlatform)
		}
		if _, twice := domains[host]; twice {
			return nil, errors.New("a domain is named twice")
		}
		domains[host] = ""
		if platform != OtherPlatform {
			domains[host] = platform
		}
	}
	return domains, nil
}

// plainHost says whether host is a name, perhaps with a port, as it stands in the address of a document.
func plainHost(host string) bool {
	_, ok := ReadAddress("https://" + host + "/x")
	parsed, err := url.Parse("https://" + host)
	return ok && err == nil && parsed.Host == host && !strings.Contains(host, "*")
}

// Serve says whether address is one of a document that is read here, and which platform its client counts as. Hosts are compared to
// the letter: a subdomain is another host.
func (d Domains) Serve(address string) (platform string, ok bool) {
	host, ok := ReadAddress(address)
	if !ok {
		return "", false
	}
	platform, ok = d[host]
	return platform, ok
}
