package publicforms

import (
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/testkit"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// A language that is written from right to left needs only its file.
func TestPage_LanguageFromRightToLeft(t *testing.T) {
	content, err := os.ReadFile("../../engage/languages/en.json")
	testkit.Must(t, err)
	text := strings.NewReplacer(`"en-GB"`, `"ar"`, `"ltr"`, `"rtl"`, `"Send"`, `"إرسال"`).Replace(string(content))
	arabic, err := engage.ReadLanguage("ar", []byte(text))
	testkit.Must(t, err)
	v := viewOf(engage.Form{Title: "تطوع معنا", Fields: []engage.Field{
		{Name: "name", Label: "اسمك", Type: engage.Text},
		{Name: "email", Label: "بريدك", Type: engage.Email},
	}}, pageStyle{})
	v.Words = arabic
	w := httptest.NewRecorder()
	testkit.Must(t, new(Endpoint).render(w, 200, nil, v))
	for _, piece := range []string{
		`<html lang="ar" dir="rtl">`, `<button type="submit">إرسال</button>`,
		`type="text" autocomplete="name" dir="auto"`, `type="email" autocomplete="email" dir="ltr"`,
	} {
		if !strings.Contains(w.Body.String(), piece) {
			t.Errorf("the page lacks %s: %s", piece, w.Body)
		}
	}
}

var physical = regexp.MustCompile(
	`(margin|padding|border)-(left|right)|text-align: ?(left|right)|[{; ](left|right):|float:`,
)

func TestStyle_HasNoLeftOrRight(t *testing.T) {
	if found := physical.FindAllString(string(embedCSS), -1); len(found) > 0 {
		t.Errorf("%q", found)
	}
}
