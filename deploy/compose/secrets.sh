#!/bin/sh
# Creates the missing secrets of deploy/compose.yaml, one file each. It never changes or prints a secret. Only the owner
# can enter the directory. The files are readable by all, because the containers run as other users; each container gets
# the files it needs.
set -eu
dir=${1:-"$(dirname "$0")/../secrets"}
mkdir -p "$dir"
chmod 700 "$dir"
cd "$dir"

keep() { # keep NAME writes standard input to the file NAME, unless it exists
	if [ -e "$1" ]; then cat >/dev/null; else
		(umask 077; cat >"$1.new")
		chmod 444 "$1.new"
		mv "$1.new" "$1"
	fi
}
random() { head -c 32 /dev/urandom | basenc --base64url | tr -d '=\n'; }

for name in postgres owner authserver resourceapi redis; do random | keep "${name}_password"; done
for role in owner authserver resourceapi; do
	login=$role
	[ "$role" != owner ] || login=almoner_owner
	printf 'postgres://%s:%s@postgres:5432/almoner?sslmode=disable' "$login" "$(cat "${role}_password")" | keep "${role}_database_url"
done
printf 'requirepass %s\n' "$(cat redis_password)" | keep redis.conf
printf 'redis://:%s@redis:6379/0' "$(cat redis_password)" | keep redis_url
for service in authserver resourceapi; do random | keep "${service}_keys"; done
echo "the secrets are in $dir: keep a copy elsewhere" >&2
