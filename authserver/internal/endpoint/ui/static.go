package ui

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/almonerhq/almoner/shared/page/brand"
)

//go:embed static/*
var staticFiles embed.FS

type staticFile struct {
	content []byte
	version string // hash of the content: changed content gets a new URL, so browsers may cache each URL for ever

	contentType string // empty to derive it from the file's name
}

func newStaticFile(content []byte) staticFile {
	sum := sha256.Sum256(content)
	return staticFile{content: content, version: hex.EncodeToString(sum[:6])}
}

func readStatic() (map[string]staticFile, error) {
	entries, err := staticFiles.ReadDir("static")
	if err != nil {
		return nil, fmt.Errorf("read static files: %w", err)
	}
	files := map[string]staticFile{}
	for _, entry := range entries {
		content, err := staticFiles.ReadFile(path.Join("static", entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("read static file: %w", err)
		}
		if entry.Name() == sheetFile {
			content = append([]byte(brand.Tokens()), content...)
		}
		files[entry.Name()] = newStaticFile(content)
	}
	return files, nil
}

// asset returns the URL of a static file, for the templates.
func (p *Pages) asset(name string) (string, error) {
	file, ok := p.files[name]
	if !ok {
		return "", fmt.Errorf("no static file %q", name)
	}
	return "/static/" + name + "?v=" + file.version, nil
}

// Static serves the files under /static/.
func (p *Pages) Static() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/static/")
		file, ok := p.files[name]
		if !ok {
			p.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", cmp.Or(file.contentType, mime.TypeByExtension(path.Ext(name))))
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if name == iconFile { // the logo of a deployment runs no script when a browser opens it as a page
			policy := "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
			w.Header().Set("Content-Security-Policy", policy)
		}
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		w.Header().Set("Cache-Control", "no-cache")
		if r.URL.Query().Get("v") == file.version {
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		_, _ = w.Write(file.content)
	})
}

// SetBrand makes the pages show the name, the logo and the colour of a deployment. It is called before any page is
// shown.
func (p *Pages) SetBrand(b brand.Brand) {
	p.brand = b
	logo := b.Logo()
	icon := newStaticFile(logo.Content)
	icon.contentType = logo.ContentType
	p.files[iconFile] = icon
	if colour, own := b.Colour(); own {
		sheet := bytes.Clone(p.files[sheetFile].content)
		p.files[sheetFile] = newStaticFile(append(sheet, accent(colour)...))
	}
}

const (
	iconFile  = "icon.svg"
	sheetFile = "site.css"
)

// accent returns a style sheet that replaces the colour of buttons and links by shades of c that can be read on both
// grounds.
func accent(c brand.Colour) string {
	declare := func(ground brand.Colour) string {
		ink := c.Accent(ground).Ink
		button := ink.Accent(ground)
		return "--brand:" + ink.String() + ";--brand-strong:" + button.Strong.String() + ";--on-brand:" +
			button.On.String() + ";--link:" + ink.String()
	}
	return brand.Override(declare(brand.LightGround), declare(brand.DarkGround))
}
