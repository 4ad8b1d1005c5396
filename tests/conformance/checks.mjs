// What the scripts in JavaScript share: checks judged one by one, and their counts for run.py.
export async function runAll(client, checks) {
  let failed = 0;
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      console.log(`ok   ${client} ${name}`);
    } catch (error) {
      ++failed;
      console.log(`FAIL ${client} ${name}: ${error}`);
    }
  }
  console.log(`COUNTS ${Object.keys(checks).length - failed} ${failed}`);
}
