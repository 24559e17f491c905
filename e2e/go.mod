module github.com/almonerhq/almoner/e2e

go 1.26

require github.com/almonerhq/almoner/shared v0.0.0

replace github.com/almonerhq/almoner/shared => ../shared

require github.com/almonerhq/almoner/deploy v0.0.0

replace github.com/almonerhq/almoner/deploy => ../deploy
