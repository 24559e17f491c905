package mailbox

import (
	_ "embed"
	"html/template"
	"net"
	"net/url"
	"regexp"
)

//go:embed list.html
var listHTML string

// list is the page of the messages. Their HTML is shown in a frame without scripts.
var list = template.Must(template.New("list").Funcs(template.FuncMap{
	"parts": parts,
	"frame": func(html string) string { return `<base target="_blank">` + html },
}).Parse(listHTML))

// A part is a piece of text, or a URL.
type part struct {
	Text string
	Link bool
}

var address = regexp.MustCompile(`https?://[^\s<>"]+`)

// parts splits text at its URLs.
func parts(text string) []part {
	var all []part
	end := 0
	for _, at := range address.FindAllStringIndex(text, -1) {
		all = append(all, part{Text: text[end:at[0]]}, part{Text: text[at[0]:at[1]], Link: true})
		end = at[1]
	}
	return append(all, part{Text: text[end:]})
}

// namesThisMachine reports whether a Host header names this machine. With any other name, which resolves to this
// machine, a page of another site could read the mails and their links (DNS rebinding).
func namesThisMachine(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	return name == "localhost" || net.ParseIP(name).IsLoopback()
}
